package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lastseen/lastseen/client"
)

// webhookCmd is about webhooks.
type webhookCmd struct {
	Enable webhookEnableCmd `cmd:"" help:"Have a webhook delivered again whose receiver answered 410."`
	Listen webhookListenCmd `cmd:"" help:"Receive webhooks: verify events and print them. For testing."`
}

// webhookEnableCmd enables a webhook at a running server.
type webhookEnableCmd struct {
	Name string `arg:"" placeholder:"NAME" help:"Name of the webhook in the configuration file."`
	remote
}

// Run returns an error unless the server enabled the webhook.
func (cmd *webhookEnableCmd) Run(ctx context.Context, std Streams) error {
	c, err := cmd.connect()
	if err != nil {
		return err
	}
	if err := c.EnableWebhook(ctx, cmd.Name); err != nil {
		return err
	}
	_, err = fmt.Fprintf(std.Out, "%s: enabled\n", cmd.Name)
	return err
}

// webhookListenCmd is a receiver of webhooks.
type webhookListenCmd struct {
	Address     string `arg:"" placeholder:"ADDRESS" help:"Address to listen on, such as :9000."`
	SecretsFile string `required:"" placeholder:"FILE" help:"The secrets-file of the webhook. An event that one of them signed is accepted."`
}

// maxReceived is the size of the largest event that is received, in bytes: a single user can take more than an event
// usually has.
const maxReceived = 1 << 20

// Run receives events until the context ends.
func (cmd *webhookListenCmd) Run(ctx context.Context, std Streams) error {
	text, err := os.ReadFile(cmd.SecretsFile)
	if err != nil {
		return err
	}
	secrets := slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool {
		line = strings.TrimSpace(line)
		return line == "" || line[0] == '#'
	})
	verifier, err := client.NewVerifier(secrets...)
	if err != nil {
		return fmt.Errorf("%s: %w", cmd.SecretsFile, err)
	}
	listener, err := net.Listen("tcp", cmd.Address)
	if err != nil {
		return err
	}
	fmt.Fprintf(std.Err, "receiving at http://%s/\n", listener.Addr())
	server := http.Server{
		ReadTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReceived))
			if err == nil {
				_, err = verifier.Verify(body, r.Header)
			}
			if err != nil {
				fmt.Fprintf(std.Err, "refused: %s\n", Message(err))
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			fmt.Fprintf(std.Out, "%s\n", body)
			w.WriteHeader(http.StatusNoContent)
		}),
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
