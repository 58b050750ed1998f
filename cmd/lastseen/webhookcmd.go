package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/lastseen/lastseen/api/live/webhooks"
)

// webhookCmd is about webhooks.
type webhookCmd struct {
	Enable webhookEnableCmd `cmd:"" help:"Have a webhook delivered again whose receiver answered 410."`
	Listen webhookListenCmd `cmd:"" help:"Receive webhooks: verify events and print them. For testing."`
}

// webhookEnableCmd enables a webhook at a running server.
type webhookEnableCmd struct {
	Name    string `arg:"" placeholder:"NAME" help:"Name of the webhook in the configuration file."`
	Server  string `default:"http://127.0.0.1:8080" env:"LASTSEEN_SERVER" placeholder:"URL" help:"Any server that has the webhook (default http://127.0.0.1:8080)."`
	KeyFile string `placeholder:"FILE" help:"File with an API key that has the scope admin in all namespaces. Default: the environment variable LASTSEEN_API_KEY."`
}

// commandTimeout is the time limit of a request to a running server.
const commandTimeout = 10 * time.Second

// Run returns an error unless the server enabled the webhook.
func (cmd *webhookEnableCmd) Run(ctx context.Context, std streams) error {
	base, err := url.Parse(cmd.Server)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return errors.New("--server: use the URL of a server, such as http://127.0.0.1:8080")
	}
	key := os.Getenv("LASTSEEN_API_KEY")
	if cmd.KeyFile != "" {
		text, err := os.ReadFile(cmd.KeyFile)
		if err != nil {
			return err
		}
		key = strings.TrimSpace(string(text))
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	target := base.JoinPath("v1", "webhooks", url.PathEscape(cmd.Name), "enable").String()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, nil)
	if err != nil {
		return err
	}
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusNoContent {
		return refused(base.Host, response)
	}
	_, err = fmt.Fprintf(std.out, "%s: enabled\n", cmd.Name)
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
func (cmd *webhookListenCmd) Run(ctx context.Context, std streams) error {
	text, err := os.ReadFile(cmd.SecretsFile)
	if err != nil {
		return err
	}
	secrets, err := webhooks.ParseSecrets(text)
	if err != nil {
		return fmt.Errorf("%s: %w", cmd.SecretsFile, err)
	}
	listener, err := net.Listen("tcp", cmd.Address)
	if err != nil {
		return err
	}
	fmt.Fprintf(std.err, "receiving at http://%s/\n", listener.Addr())
	server := http.Server{
		ReadTimeout: commandTimeout,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReceived))
			if err != nil || !webhooks.Verify(secrets, body, r.Header) {
				fmt.Fprintln(std.err, "refused: the signature is not valid")
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			fmt.Fprintf(std.out, "%s\n", body)
			w.WriteHeader(http.StatusNoContent)
		}),
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
