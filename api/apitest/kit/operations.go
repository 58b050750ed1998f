package kit

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/live/transport"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/web"
)

// loadDocument reads the OpenAPI document once for all tests. Its schemas reject fields that are not documented,
// although clients have to accept new ones, and values that only descriptions exclude.
var loadDocument = sync.OnceValues(func() (*openapi3.T, error) {
	openapi3filter.RegisterBodyDecoder("application/x-ndjson", openapi3filter.PlainBodyDecoder)
	openapi3filter.RegisterBodyDecoder("image/svg+xml", openapi3filter.PlainBodyDecoder)
	// The validator reads events as text. Their tests read them as clients do.
	openapi3filter.RegisterBodyDecoder(transport.MediaType, openapi3filter.PlainBodyDecoder)
	doc, err := openapi3.NewLoader().LoadFromData(lastseen.OpenAPI("1"))
	if err != nil {
		return nil, err
	}
	closed := false
	for _, schema := range doc.Components.Schemas {
		schema.Value.AdditionalProperties = openapi3.AdditionalProperties{Has: &closed}
	}
	for _, name := range []string{"Presence", "UserPresence"} {
		shown := doc.Components.Schemas[name].Value.Properties
		shown["activity"].Value.Enum = []any{"idle"}
		shown["availability"].Value.Enum = []any{"away", "busy"}
	}
	return doc, nil
})

// Document returns the OpenAPI document.
func Document(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := loadDocument()
	require.NoError(t, err)
	return doc
}

// IsPage reports whether a path is of a page for people, which is not an operation.
func IsPage(path string) bool {
	redirects := []string{"/docs", "/docs/errors"}
	return slices.Contains(redirects, path) || strings.HasPrefix(path, "/guides") || slices.Contains(web.Paths(), path)
}

// OperationsOf lists the operations that can return each code. EmptySegment, NotFound, MethodNotAllowed and
// TooManyHeaders are requests that match none.
func OperationsOf() map[problem.Code]string {
	const (
		records   = " pingUser recordLeave recordPings recordLeaves"
		devices   = " listDevices closeConnections"
		evaluates = " getUser getUserDot lookupUsers lookupUsersByQuery listUsers countUsers"
		follows   = " followChanges followChangesByPost"
		says      = " setAvailability getAvailability deleteAvailability"
		keeps     = " setContacts changeContacts deleteContacts listContacts"
		deletes   = " deleteUser deleteNamespace"
		acts      = " acceptCall rejectCall endCall keepCallAlive"
		calls     = acts + " startCall getCall listCalls"
		uses      = records + evaluates + devices + follows + says + keeps + deletes + calls // a namespace in the store
		webhooks  = " listWebhooks testWebhook enableWebhook"
		all       = uses + " getNamespace listNamespaces" + webhooks
		socket    = " WebSocket" // an error after the upgrade, which is not a response
		bodies    = records + " lookupUsers followChangesByPost setAvailability setContacts changeContacts startCall" + acts
	)
	return map[problem.Code]string{
		problem.InvalidNamespace:     uses + " getNamespace EmptySegment" + " connect",
		problem.InvalidUser:          records + " getUser getUserDot lookupUsers lookupUsersByQuery deleteUser EmptySegment" + follows + devices + says + keeps + acts + " startCall listCalls",
		problem.InvalidDevice:        records + acts + " startCall",
		problem.InvalidTime:          records + evaluates + " setAvailability listContacts",
		problem.InvalidDuration:      evaluates + follows + " recordLeave recordLeaves setAvailability listContacts listCalls",
		problem.InvalidAvailability:  "setAvailability",
		problem.InvalidNote:          "setAvailability",
		problem.NoAvailability:       "setAvailability deleteAvailability",
		problem.AvailabilityNotReady: "setAvailability",
		problem.NoContacts:           keeps,
		problem.TooManyContacts:      "changeContacts",
		problem.ContactsChanged:      "setContacts changeContacts",
		problem.InvalidCall:          "startCall acceptCall keepCallAlive",
		problem.CallNotFound:         "getCall" + acts,
		problem.CallerBusy:           "startCall",
		problem.CalleeBusy:           "startCall",
		problem.CalleeUnavailable:    "startCall",
		problem.CallRefused:          acts,
		problem.IdempotencyKeyReused: "startCall",
		problem.TooManyCalls:         "startCall",
		problem.CallTooSoon:          "startCall",
		problem.NoCalls:              calls,
		problem.InvalidThresholds:    evaluates + " listContacts",
		problem.InvalidParameter:     all + " EmptySegment" + " connect",
		problem.UnknownParameter:     all + " connect",
		problem.InvalidCursor:        "listUsers listNamespaces listContacts listCalls" + follows,
		problem.InvalidRange:         "listUsers countUsers",
		problem.InvalidJSON:          bodies,
		problem.UnknownField:         bodies,
		problem.TooManyItems:         "recordPings recordLeaves lookupUsers lookupUsersByQuery setContacts changeContacts" + follows,
		problem.BodyTooLarge:         bodies,
		problem.TooManyHeaders:       "TooManyHeaders",
		problem.UnsupportedMediaType: bodies,
		problem.ConfirmationRequired: "deleteNamespace",
		problem.NotFound:             records + evaluates + follows + says + keeps + calls + " listDevices getNamespace NotFound",
		problem.MethodNotAllowed:     "MethodNotAllowed",
		problem.Unauthenticated:      all,
		problem.Forbidden:            all + " connect",
		problem.RateLimited:          all + " connect",
		problem.FeedUnavailable:      follows,
		problem.WrongKeyType:         uses + " listNamespaces",
		problem.NamespaceMismatch:    uses,
		problem.StoreUnavailable:     uses + " listNamespaces getReadiness listWebhooks enableWebhook",
		problem.DevicesUnavailable:   records + " listDevices",
		problem.StoreFull:            records + deletes + " setAvailability deleteAvailability setContacts changeContacts deleteContacts" + " closeConnections" + " getReadiness startCall" + acts,
		problem.Overloaded:           uses + " listNamespaces" + " connect",
		problem.KeysUnavailable:      all,
		problem.ShuttingDown:         "getReadiness connect followChanges followChangesByPost",
		problem.WebhookNotFound:      "testWebhook enableWebhook",
		problem.UpgradeRequired:      "connect",
		problem.UnknownFrame:         socket,
		problem.TimedOut:             socket,
		problem.ConnectionClosed:     socket,
		problem.Internal:             uses + " listNamespaces getReadiness listWebhooks enableWebhook",
	}
}

// DocumentedResponses returns all kinds of response, as "operation status" and, for errors, "operation status code".
func DocumentedResponses(doc *openapi3.T) map[string]bool {
	all := map[string]bool{"Options 204": true}
	for _, item := range doc.Paths.Map() {
		for _, operation := range item.Operations() {
			for status := range operation.Responses.Map() {
				if status < "4" { // of errors, the codes count: see below
					all[operation.OperationID+" "+status] = true
				}
			}
		}
	}
	for code, operations := range OperationsOf() {
		for operation := range strings.FieldsSeq(operations) {
			if operation == "WebSocket" {
				continue
			}
			all[fmt.Sprintf("%s %d %s", operation, code.Type().Status, code)] = true
		}
	}
	return all
}
