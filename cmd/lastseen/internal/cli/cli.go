// Package cli has the commands for a running server, on the Go client.
//
// They print tables for people: in colour on a terminal, unless NO_COLOR is set. With --json they print one JSON object
// a line, with the fields of package client. Everything else goes to the standard error.
package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/client"
)

// Streams are where commands write.
type Streams struct{ Out, Err io.Writer }

// Message returns the text of an error for a terminal, without the name of the program that those of package client
// begin with.
func Message(err error) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || strconv.IsPrint(r) {
			return r
		}
		return utf8.RuneError
	}, strings.TrimPrefix(err.Error(), "lastseen: "))
}

// environ is the environment, in which any NO_COLOR asks for no colours.
func environ() []string {
	all := os.Environ()
	if os.Getenv("NO_COLOR") != "" {
		all = append(all, "NO_COLOR=1")
	}
	return all
}

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
	Load            loadCmd            `cmd:"" group:"server" help:"Send pings and lookups at a rate, and show how long they take."`
	Webhook         webhookCmd         `cmd:"" group:"server" help:"Enable webhooks, and receive them for testing."`
}

// remote says which server a command is for.
type remote struct {
	Server  serverURL `env:"LASTSEEN_SERVER" placeholder:"URL" help:"URL of the server (default http://127.0.0.1:8080)."`
	KeyFile string    `placeholder:"FILE" help:"File with an API key. Default: the environment variable LASTSEEN_API_KEY."`
}

// connect returns a client of the server. It sends nothing.
func (r remote) connect() (*client.Client, error) {
	return r.connectWith(client.Options{Tries: 2, MaxWait: 5 * time.Second})
}

func (r remote) connectWith(o client.Options) (*client.Client, error) {
	o.Key = os.Getenv("LASTSEEN_API_KEY")
	if r.KeyFile != "" {
		text, err := os.ReadFile(r.KeyFile)
		if err != nil {
			return nil, err
		}
		o.Key = strings.TrimSpace(string(text))
	}
	return client.New(r.Server.text(), o)
}

// serverURL is the URL of a server; "" for the default.
type serverURL string

func (u serverURL) text() string { return cmp.Or(string(u), "http://127.0.0.1:8080") }

// Validate implements [kong.Validatable].
func (u serverURL) Validate() error {
	_, err := client.New(u.text(), client.Options{})
	return err
}

// namespace is the name of a namespace. Names are checked before anything is sent: a proxy could take others for paths.
type namespace string

// Validate implements [kong.Validatable].
func (n namespace) Validate() error { return lastseen.CheckNamespace(string(n)) }

// userID is the ID of a user.
type userID string

// Validate implements [kong.Validatable].
func (u userID) Validate() error { return lastseen.CheckUser(string(u)) }

func checkUsers(all []string) error {
	for _, u := range all {
		if err := lastseen.CheckUser(u); err != nil {
			return err
		}
	}
	return nil
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

// writeJSON writes a value as a line. What a terminal could take for a command is escaped, also in JSON of users.
func writeJSON(w io.Writer, v any) error {
	var text strings.Builder
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	var b []byte
	for _, r := range text.String() {
		if r < 0x7f || strconv.IsPrint(r) {
			b = utf8.AppendRune(b, r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			b = fmt.Appendf(b, `\u%04x`, unit)
		}
	}
	_, err := w.Write(b)
	return err
}
