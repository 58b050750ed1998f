package main

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// serveSite serves a page of a room, for a lastseen server that nobody calls.
func serveSite(t *testing.T, room *room) string {
	t.Helper()
	s := httptest.NewServer(newSite("https://presence.example.com", room))
	t.Cleanup(s.Close)
	return s.URL
}

func fetch(t *testing.T, method, url, body string, header ...string) (int, string, http.Header) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(content), response.Header
}

// TestSiteNamesTheServer: the page may load and call what is on the lastseen server and on its own site, no more.
func TestSiteNamesTheServer(t *testing.T) {
	t.Parallel()
	url := serveSite(t, newRoom())
	status, page, header := fetch(t, http.MethodGet, url, "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, page, `href="https://presence.example.com/"`)
	policy := header.Get("Content-Security-Policy")
	require.Contains(t, policy, "connect-src 'self' https://presence.example.com wss://presence.example.com;")
	require.NotContains(t, policy, "unsafe")
	_, script, _ := fetch(t, http.MethodGet, url+"/chat.js", "")
	require.Contains(t, script, "from 'https://presence.example.com/lastseen.js'")
	status, _, _ = fetch(t, http.MethodGet, url+"/page/chat.js", "")
	require.Equal(t, http.StatusNotFound, status)
}

func TestSiteAcceptsMessagesOfItsPages(t *testing.T) {
	t.Parallel()
	room := newRoom()
	url := serveSite(t, room) + "/messages"
	for body, want := range map[string]int{
		`{"user":"alice","text":"hello"}`:                                 http.StatusNoContent,
		`{"user":"alice","text":""}`:                                      http.StatusBadRequest,
		`{"user":"","text":"hello"}`:                                      http.StatusBadRequest,
		`{"user":"<b>","text":"hello"}`:                                   http.StatusBadRequest,
		`{"user":"alice","text":"` + strings.Repeat("é", 500) + `"}`:      http.StatusNoContent,
		`{"user":"alice","text":"` + strings.Repeat("e", 501) + `"}`:      http.StatusBadRequest,
		`{"user":"alice","text":"` + strings.Repeat("e", 10_000) + `"}`:   http.StatusBadRequest,
		`{"user":"` + strings.Repeat("a", 33) + `","text":"hello"}`:       http.StatusBadRequest,
		`{"user":"alice","text":"hello"`:                                  http.StatusBadRequest,
		`{"user":"` + strings.Repeat("a-1", 10) + `","text":"\u0000 \n"}`: http.StatusNoContent,
	} {
		status, _, _ := fetch(t, http.MethodPost, url, body)
		require.Equal(t, want, status, body)
	}
	status, _, _ := fetch(t, http.MethodPost, url, `{"user":"alice","text":"hello"}`, "Sec-Fetch-Site", "cross-site")
	require.Equal(t, http.StatusForbidden, status, "a page of another site")
	events, _ := room.after(0)
	require.Len(t, events, 3)
}

// nextData returns the data of the next event in a stream.
func nextData(t *testing.T, events *bufio.Scanner) string {
	t.Helper()
	for events.Scan() {
		if data, found := strings.CutPrefix(events.Text(), "data: "); found {
			return data
		}
	}
	t.Fatalf("the stream has ended: %v", events.Err())
	return ""
}

// TestSiteStreamsTheConversation: a page gets the members and messages so far, and then new ones.
func TestSiteStreamsTheConversation(t *testing.T) {
	t.Parallel()
	room := newRoom("alice")
	room.post(message{User: "alice", Text: "hello\n\ndata: x"})
	url := serveSite(t, room)
	response, err := http.Get(url + "/events?user=guest-1")
	require.NoError(t, err)
	defer response.Body.Close()
	events := bufio.NewScanner(response.Body)
	require.JSONEq(t, `{"member":"alice"}`, nextData(t, events))
	require.JSONEq(t, `{"message":{"user":"alice","text":"hello\n\ndata: x"}}`, nextData(t, events))
	require.JSONEq(t, `{"member":"guest-1"}`, nextData(t, events))
	room.post(message{Text: "alice has closed the page"})
	require.JSONEq(t, `{"message":{"text":"alice has closed the page"}}`, nextData(t, events))
	room.join("guest-2")
	require.JSONEq(t, `{"member":"guest-2"}`, nextData(t, events))
	status, _, _ := fetch(t, http.MethodGet, url+"/events?user=%3Cb%3E", "")
	require.Equal(t, http.StatusBadRequest, status)
}

// TestRoomIsBounded: a room keeps the newest messages, and lists a number of members.
func TestRoomIsBounded(t *testing.T) {
	t.Parallel()
	room := newRoom("alice")
	for i := range maxMessages + 10 {
		room.post(message{User: "alice", Text: strconv.Itoa(i)})
	}
	events, changed := room.after(0)
	require.Len(t, events, 1+maxMessages)
	require.Equal(t, "alice", events[0].Member)
	require.Equal(t, "10", events[1].Message.Text)
	for i := range maxMembers + 1 {
		room.join("guest-" + strconv.Itoa(i))
	}
	<-changed
	events, _ = room.after(events[len(events)-1].number)
	require.Len(t, events, maxMembers-1)
}
