// Package cli has the commands for a running server, on the Go client.
//
// They print tables for people: in colour on a terminal, unless NO_COLOR is set. With --json they print one JSON object
// a line, with the fields of package client. What is no result goes to the standard error.
package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/lastseen/lastseen/client"
)

// Streams are where commands write.
type Streams struct{ Out, Err io.Writer }

// Message returns the text of an error, without the name of the program that those of package client begin with.
func Message(err error) string { return strings.TrimPrefix(err.Error(), "lastseen: ") }

// Commands are those for a running server.
type Commands struct {
	Ping            pingCmd            `cmd:"" group:"server" help:"Record that users are online."`
	Leave           leaveCmd           `cmd:"" group:"server" help:"Record that users went away."`
	Get             getCmd             `cmd:"" group:"server" help:"Look users up."`
	List            listCmd            `cmd:"" group:"server" help:"List who was seen, those seen last first."`
	Counts          countsCmd          `cmd:"" group:"server" help:"Count users by status."`
	Watch           watchCmd           `cmd:"" group:"server" help:"Follow changes: a table on a terminal, lines elsewhere."`
	Devices         devicesCmd         `cmd:"" group:"server" help:"List the devices of a user."`
	Availability    availabilityCmd    `cmd:"" group:"server" help:"Show or set what a user says about being available."`
	Namespaces      namespacesCmd      `cmd:"" group:"server" help:"List the namespaces."`
	Forget          forgetCmd          `cmd:"" group:"server" help:"Delete what is stored of a user."`
	DeleteNamespace deleteNamespaceCmd `cmd:"" group:"server" help:"Delete all users of a namespace."`
	Export          exportCmd          `cmd:"" group:"server" help:"Print all users, as NDJSON that import takes."`
	Import          importCmd          `cmd:"" group:"server" help:"Record when users were seen, from a file."`
	Webhook         webhookCmd         `cmd:"" group:"server" help:"Enable webhooks, and receive them for testing."`
}

// remote says which server a command is for.
type remote struct {
	Server  string `default:"http://127.0.0.1:8080" env:"LASTSEEN_SERVER" placeholder:"URL" help:"URL of the server (default http://127.0.0.1:8080)."`
	KeyFile string `placeholder:"FILE" help:"File with an API key. Default: the environment variable LASTSEEN_API_KEY."`
}

// connect returns a client of the server. It sends nothing.
func (r remote) connect() (*client.Client, error) {
	o := client.Options{Key: os.Getenv("LASTSEEN_API_KEY"), Tries: 2, MaxWait: 5 * time.Second}
	if r.KeyFile != "" {
		text, err := os.ReadFile(r.KeyFile)
		if err != nil {
			return nil, err
		}
		o.Key = strings.TrimSpace(string(text))
	}
	c, err := client.New(r.Server, o)
	if err != nil {
		return nil, fmt.Errorf("--server: %w", err)
	}
	return c, nil
}

// output says how a command prints its result.
type output struct {
	JSON bool `name:"json" help:"Print JSON, one object a line."`
}

// print prints one result: as JSON, or as a line of text.
func (o output) print(std Streams, result any, format string, args ...any) error {
	if o.JSON {
		return writeJSON(std.Out, result)
	}
	_, err := fmt.Fprintf(std.Out, format+"\n", args...)
	return err
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
