package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/store"
)

// FuzzCursor checks that an accepted cursor has valid parameters, and that they encode to the same cursor.
func FuzzCursor(f *testing.F) {
	p, err := readListParams(request.Query{
		"from": {"0.005"}, "to": {"1795175999"}, "offset": {"3"}, "order": {"oldest"}, "status": {"grey", "green"},
	}, view{kit.Now, lastseen.Thresholds{Green: time.Minute, Yellow: time.Hour}, kit.Now})
	require.NoError(f, err)
	position := positionOf(store.Record{User: "alice", State: lastseen.State{At: 7, Left: true}})
	f.Add([]byte(p.cursor("chat", position)), false)
	position = positionOf(store.Record{User: "a", State: lastseen.State{At: 7}})
	content, err := request.OpenCursor("chat", p.cursor("chat", position))
	require.NoError(f, err)
	f.Add(content, true)
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		cursor := string(data)
		if seal { // a forger can compute the checksum
			cursor = request.SealCursor("chat", data)
		}
		p, position, err := openListCursor("chat", cursor, request.Query{"limit": {"7"}, "cursor": {cursor}})
		var last *store.Record
		if err == nil {
			last, err = p.recordAt(position)
		}
		if err != nil {
			require.Equal(t, problem.InvalidCursor, kit.RequireProblem(t, err).Code)
			return
		}
		requireValid(t, p)
		require.NoError(t, lastseen.CheckUser(last.User))
		require.True(t, p.from <= last.At && last.At <= p.to)
		require.Equal(t, cursor, p.cursor("chat", positionOf(*last)))
	})
}
