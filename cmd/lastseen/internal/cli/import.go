package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/lastseen/lastseen/client"
)

type importCmd struct {
	remote
	Namespace namespace `arg:"" help:"Name of the namespace."`
	File      string    `arg:"" help:"CSV or NDJSON with user, last_seen and left; - for standard input."`
	Skip      int64     `placeholder:"N" help:"Leave out the first N lines, which were imported before."`
}

// Validate implements [kong.Validatable].
func (cmd *importCmd) Validate() error {
	if cmd.Skip < 0 {
		return errors.New("--skip: use a number of lines")
	}
	return nil
}

// Run records when the users of the file were seen. A user who was seen later than that stays so, which makes it safe
// to import lines again.
func (cmd *importCmd) Run(ctx context.Context, std Streams) error {
	c, err := cmd.connect()
	if err != nil {
		return err
	}
	var file io.ReadCloser = os.Stdin
	if cmd.File != "-" {
		if file, err = os.Open(cmd.File); err != nil {
			return err
		}
	}
	defer file.Close()
	bytes := newCounter(file)
	i := &importer{
		client: c, namespace: string(cmd.Namespace), std: std, progress: NewProgress(std.Err), done: cmd.Skip,
	}
	i.progress.bytes = bytes
	users, err := newUserReader(bytes)
	for err == nil {
		var u seenUser
		if u, err = users.next(); err != nil && !errors.As(err, new(badLine)) {
			break
		}
		if u.line > cmd.Skip {
			err = i.add(ctx, u, err)
		} else {
			err = nil
		}
	}
	if errors.Is(err, io.EOF) {
		err = i.send(ctx)
	}
	i.progress.Clear()
	if err != nil {
		return fmt.Errorf("%w; go on with --skip %d", err, i.done)
	}
	fmt.Fprintf(std.Out, "%d imported\n", i.imported)
	if i.bad > 0 {
		return fmt.Errorf("%d lines were left out", i.bad)
	}
	return nil
}

const (
	maxImported = 1000 // users of a request: with IDs of any length, they fit
	maxBadLines = 20   // that are shown
)

// importer sends users in batches.
type importer struct {
	client        *client.Client
	namespace     string
	std           Streams
	progress      *Progress
	batch         []seenUser
	done          int64 // lines up to this are dealt with
	imported, bad int
}

// add adds the user of a line, or says why that line is left out.
func (i *importer) add(ctx context.Context, u seenUser, bad error) error {
	if bad != nil {
		i.refuse(u.line, bad)
		return nil
	}
	i.batch = append(i.batch, u)
	if len(i.batch) < maxImported {
		return nil
	}
	return i.send(ctx)
}

func (i *importer) refuse(line int64, why error) {
	if i.bad++; i.bad > maxBadLines {
		return
	}
	i.progress.Clear()
	fmt.Fprintf(i.std.Err, "line %d: %s\n", line, Message(why))
	if i.bad == maxBadLines {
		fmt.Fprintln(i.std.Err, "more lines like these are counted")
	}
}

// send sends what was added.
func (i *importer) send(ctx context.Context) error {
	for _, left := range []bool{false, true} {
		if err := i.record(ctx, left); err != nil {
			return err
		}
	}
	if n := len(i.batch); n > 0 {
		i.done = i.batch[n-1].line
	}
	i.batch = i.batch[:0]
	i.progress.Show(i.imported)
	return nil
}

// record records the pings of the batch, or the leaves. Those that the server does not accept are left out.
func (i *importer) record(ctx context.Context, left bool) error {
	users := slices.DeleteFunc(slices.Clone(i.batch), func(u seenUser) bool { return u.left != left })
	record := i.client.RecordPings
	if left {
		record = i.client.RecordLeaves
	}
	for len(users) > 0 {
		events := make([]client.Event, len(users))
		for k, u := range users {
			events[k] = client.Event{User: u.user, At: u.at}
		}
		_, err := record(ctx, i.namespace, events)
		if err == nil {
			i.imported += len(users)
			return nil
		}
		rest := i.leaveOut(users, err)
		if len(rest) == len(users) {
			return err
		}
		users = rest
	}
	return nil
}

// leaveOut returns users without those that an error is about.
func (i *importer) leaveOut(users []seenUser, err error) (rest []seenUser) {
	wrong := map[int]string{}
	if problem, ok := errors.AsType[*client.Error](err); ok {
		for _, item := range problem.Items {
			wrong[item.Index] = item.Detail
		}
	}
	for k, u := range users {
		if detail, ok := wrong[k]; ok {
			i.refuse(u.line, errors.New(detail))
		} else {
			rest = append(rest, u)
		}
	}
	return rest
}

// seenUser is a user in a file.
type seenUser struct {
	line int64
	user string
	at   time.Time
	left bool
}
