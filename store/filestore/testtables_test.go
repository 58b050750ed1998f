package filestore

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store/memstore"
)

// liveOf returns about how many bytes a compacted file of a store would have.
func liveOf(s *Store) int64 {
	_, live := s.tables.Size()
	return live
}

// undurable is a journal whose writes do not wait for their flush.
type undurable struct{ *writer }

func (j undurable) Do(ctx context.Context, w memstore.Write) error {
	w.Durable = false
	return j.writer.Do(ctx, w)
}

// undurably returns a store on the tables of another one, whose writes do not wait for their flush.
func undurably(s *Store) *memstore.Store { return s.tables.Store(undurable{s.writer}) }

// dump is everything that a log received, by namespace and user. Namespaces that do not exist are in parentheses.
type dump struct {
	states         map[string]map[string]lastseen.State
	devices        map[string]string
	availabilities map[string]lastseen.AvailabilityState
	hidden         map[string]memstore.Hidden
	contacts       map[string]string
}

func newDump() dump {
	return dump{
		map[string]map[string]lastseen.State{},
		map[string]string{},
		map[string]lastseen.AvailabilityState{},
		map[string]memstore.Hidden{},
		map[string]string{},
	}
}

// In implements [memstore.Log].
func (d dump) In(namespace string) {
	if d.states[namespace] == nil {
		d.states[namespace] = map[string]lastseen.State{}
	}
}

// Set implements [memstore.Log].
func (d dump) Set(namespace, user string, s lastseen.State) {
	d.In(namespace)
	d.states[namespace][user] = s
}

// SetDevices implements [memstore.Log].
func (d dump) SetDevices(
	namespace, user string, s lastseen.State, devices lastseen.Devices, meta map[string]string,
) {
	d.Set(namespace, user, s)
	d.devices[namespace+"/"+user] = fmt.Sprint(devices, meta)
}

// SetAvailability implements [memstore.Log].
func (d dump) SetAvailability(namespace, user string, s lastseen.AvailabilityState) {
	d.availabilities[namespace+"/"+user] = s
}

// Hide implements [memstore.Log].
func (d dump) Hide(namespace, user string, h memstore.Hidden) { d.hidden[namespace+"/"+user] = h }

// ChangeContacts implements [memstore.Log].
func (d dump) ChangeContacts(namespace, owner string, used lastseen.Instant, add, _ []string) {
	d.contacts[namespace+"/"+owner] = fmt.Sprint(used, add)
}

// Unlist implements [memstore.Log]. It comes last in a snapshot.
func (d dump) Unlist(namespace string) {
	delete(d.states, namespace)
	unlist(d.availabilities, namespace)
	unlist(d.hidden, namespace)
}

func unlist[T any](all map[string]T, namespace string) {
	for key, value := range all {
		if user, within := strings.CutPrefix(key, namespace+"/"); within {
			delete(all, key)
			all["("+namespace+")/"+user] = value
		}
	}
}

// Forget, Trim and Drop implement [memstore.Log]. No snapshot has them.
func (dump) Forget(string, string) { panic("in a snapshot") }
func (dump) Trim(string, string)   { panic("in a snapshot") }
func (dump) Drop(string)           { panic("in a snapshot") }

// availabilityTexts returns the availability of users, and their hidden times, as texts.
func (d dump) availabilityTexts() map[string]string {
	all := map[string]string{}
	for key, s := range d.availabilities {
		all[key] = fmt.Sprint(s)
	}
	for key, h := range d.hidden {
		all[key] += fmt.Sprint(h)
	}
	return all
}

func dumpOf(tables *memstore.Tables) dump {
	d := newDump()
	tables.Snapshot().Write(d, func() bool { return true })
	return d
}

// replayed returns what is read of runs.
func replayed(t testing.TB, runs ...[]byte) dump {
	t.Helper()
	tables, err := tablesOf(runs...)
	require.NoError(t, err)
	return dumpOf(tables)
}

// tablesOf returns tables with what is read of runs.
func tablesOf(runs ...[]byte) (*memstore.Tables, error) {
	tables := memstore.NewTables(memstore.Options{Logger: quiet()})
	return tables, tables.Load(func(log memstore.Log) error {
		for _, run := range runs {
			if err := replay(run, log); err != nil {
				return err
			}
		}
		return nil
	})
}

func replayError(run []byte) error {
	_, err := tablesOf(run)
	return err
}
