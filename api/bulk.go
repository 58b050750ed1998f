package api

import (
	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/store"
)

// pingsBody is the JSON of many pings.
type pingsBody struct {
	Pings *[]item `json:"pings"`
} // @name Pings

// leavesBody is the JSON of many leaves.
type leavesBody struct {
	Leaves *[]item `json:"leaves"`
} // @name Leaves

// bulkResponse is the response to many pings or leaves.
type bulkResponse struct {
	// How many were accepted, superseded ones included.
	Recorded int `json:"recorded" minimum:"0"`
} // @name Recorded

// pings records many pings.
//
// @ID recordPings
// @Tags Recording
// @Summary Record many pings
// @Description In JSON: at most 10,000 pings and 1 MiB, all or none. If one is wrong, nothing is recorded, and `errors` names the first 20 wrong ones by their index.
// @Description
// @Description In NDJSON: a stream of any length, one ping a line, lines of at most 4 KiB, recorded as they come. What came before a wrong line stays recorded; the error says its line and how many were recorded. The caller is authorized again before each chunk.
// @Description
// @Description After an error 503 a part may be recorded. Sending everything again does no harm.
// @Description
// @Description Needs the scope `ping`; a token of a user does not do.
// @Accept json
// @Produce json
// @Param namespace path string true "namespace"
// @Param body body pingsBody true "The pings."
// @Success 200 {object} bulkResponse "How many were accepted."
// @Failure 400 {object} problem "invalid_namespace, invalid_user, invalid_time, invalid_parameter, unknown_parameter, invalid_json, unknown_field, too_many_items"
// @Failure 401 {object} problem "unauthenticated"
// @Failure 403 {object} problem "forbidden"
// @Failure 404 {object} problem "not_found"
// @Failure 413 {object} problem "body_too_large"
// @Failure 415 {object} problem "unsupported_media_type"
// @Failure 429 {object} problem "rate_limited"
// @Failure 500 {object} problem "wrong_key_type, namespace_mismatch, internal"
// @Failure 503 {object} problem "store_unavailable, store_full, overloaded, keys_unavailable"
// @Security bearer
// @Router /v1/namespaces/{namespace}/pings [post]
func (s *server) pings(c echo.Context, _ query) error {
	var body pingsBody
	return s.bulk(c, s.store.Ping, &body, func() (*[]item, string) { return body.Pings, "pings" })
}

// leaves records many leaves.
//
// @ID recordLeaves
// @Tags Recording
// @Summary Record many leaves
// @Description For a server that goes down and says goodbye for everyone it held. The rules are those of many pings.
// @Description
// @Description Needs the scope `ping`; a token of a user does not do.
// @Accept json
// @Produce json
// @Param namespace path string true "namespace"
// @Param body body leavesBody true "The leaves."
// @Success 200 {object} bulkResponse "How many were accepted."
// @Failure 400 {object} problem "invalid_namespace, invalid_user, invalid_time, invalid_parameter, unknown_parameter, invalid_json, unknown_field, too_many_items"
// @Failure 401 {object} problem "unauthenticated"
// @Failure 403 {object} problem "forbidden"
// @Failure 404 {object} problem "not_found"
// @Failure 413 {object} problem "body_too_large"
// @Failure 415 {object} problem "unsupported_media_type"
// @Failure 429 {object} problem "rate_limited"
// @Failure 500 {object} problem "wrong_key_type, namespace_mismatch, internal"
// @Failure 503 {object} problem "store_unavailable, store_full, overloaded, keys_unavailable"
// @Security bearer
// @Router /v1/namespaces/{namespace}/leaves [post]
func (s *server) leaves(c echo.Context, _ query) error {
	var body leavesBody
	return s.bulk(c, s.store.Leave, &body, func() (*[]item, string) { return body.Leaves, "leaves" })
}

// bulk records many pings or leaves: a stream of lines, or JSON that is decoded into a value. The function items
// returns the list in that value, and the name of its field.
func (s *server) bulk(c echo.Context, record recordFunc, into any, items func() (*[]item, string)) error {
	namespace, err := pathNamespace(c)
	if err != nil {
		return err
	}
	media, err := mediaType(c)
	if err != nil {
		return err
	}
	if media == mediaNDJSON {
		return s.recordLines(c, namespace, record)
	}
	body := s.body(c, maxBody)
	defer body.release()
	if err := body.readList(into, itemMemory); err != nil {
		return err
	}
	found, field := items()
	if found == nil {
		return errorf(codeInvalidJSON, "The field %s is missing.", field)
	}
	return s.recordItems(c, namespace, record, *found)
}

// recordItems records all items, or none if one of them is invalid.
func (s *server) recordItems(c echo.Context, namespace string, record recordFunc, items []item) error {
	ctx := c.Request().Context()
	now, err := s.store.Now(ctx)
	if err != nil {
		return err
	}
	batch := make([]store.Sighting, len(items))
	var bad itemErrors
	for i, item := range items {
		sighting, err := item.sighting(now)
		if err != nil {
			bad.add(i, err)
		}
		batch[i] = sighting
	}
	if err := bad.err(); err != nil {
		return err
	}
	if _, err := record(ctx, namespace, batch); err != nil {
		return err
	}
	return respond(c, bulkResponse{Recorded: len(batch)})
}
