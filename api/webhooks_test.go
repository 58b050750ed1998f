package api_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/live/webhooks"
	"github.com/lastseen/lastseen/store"
)

// someWebhooks are two webhooks, of which one was never used. Package live/webhooks tests real ones.
type someWebhooks struct{}

func (someWebhooks) States(context.Context) ([]webhooks.State, error) {
	return []webhooks.State{
		{
			Webhook: "app", Disabled: true, Holder: true, Delivered: kit.Now, Lag: 270 * time.Millisecond,
			Behind: time.Minute, Failed: kit.Now + 1, Error: "the receiver answered 410",
		},
		{Webhook: "new", Holder: true},
	}, nil
}

func (someWebhooks) Enable(_ context.Context, name string) error {
	switch name {
	case "app":
		return nil
	case "away":
		return store.ErrUnavailable
	}
	return webhooks.ErrUnknown
}

func (w someWebhooks) Try(ctx context.Context, name string) (webhooks.Attempt, error) {
	return webhooks.Attempt{Result: webhooks.Failed, Reason: "no response in time"}, w.Enable(ctx, name)
}

// TestWebhooks: operators see how webhooks fare, try and enable them. A server without any has none.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	w := apitest.NewServer(t, kit.FileStore(t))
	w.Reload(func(c *api.Config) { c.Webhooks = nil })
	require.JSONEq(t, `{"webhooks":[]}`, w.SendTo("GET", "/v1/webhooks", "").Body)
	require.Equal(t, 404, w.SendTo("POST", "/v1/webhooks/app/test", "").Status)

	w.Reload(func(c *api.Config) { c.Webhooks = someWebhooks{} })
	require.JSONEq(t, `{"webhooks":[
		{"webhook":"app","delivering":false,"disabled":true,"last_delivery":"2026-11-20T12:00:00.000Z","lag_ms":270,
		 "behind_ms":60000,"last_failure":"2026-11-20T12:00:00.001Z","last_error":"the receiver answered 410"},
		{"webhook":"new","delivering":true,"disabled":false,"last_delivery":null,"lag_ms":0,"behind_ms":0,
		 "last_failure":null,"last_error":null}]}`, w.SendTo("GET", "/v1/webhooks", "").Body)
	require.JSONEq(t, `{"result":"failed","reason":"no response in time"}`,
		w.SendTo("POST", "/v1/webhooks/app/test", "").Body)
	for path, status := range map[string]int{
		"app/enable": 204, "other/enable": 404, "other/test": 404, "away/enable": 503,
	} {
		require.Equal(t, status, w.SendTo("POST", "/v1/webhooks/"+path, "").Status, path)
	}
}
