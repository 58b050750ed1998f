package sockettests

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	coder "github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
)

// Opcodes of frames.
const (
	opMore   = 0x0
	opText   = 0x1
	opBinary = 0x2
	opClose  = 0x8
	opPing   = 0x9
	opPong   = 0xA
	fin      = 0x80
)

// rawSocket is a WebSocket whose frames a test writes byte by byte.
type rawSocket struct {
	t    *testing.T
	conn net.Conn
	from *bufio.Reader
}

func dialRaw(w *apitest.Server, headers ...string) *rawSocket {
	w.T.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.URL, "http://"))
	require.NoError(w.T, err)
	w.T.Cleanup(func() { _ = conn.Close() })
	require.NoError(w.T, conn.SetDeadline(time.Now().Add(kit.Eventually)))
	_, err = io.WriteString(conn, "GET /v1/namespaces/chat/connect HTTP/1.1\r\nHost: localhost\r\n"+
		strings.Join(kit.UpgradeHeaders(headers...), "\r\n")+"\r\n\r\n")
	require.NoError(w.T, err)
	from := bufio.NewReader(conn)
	response, err := http.ReadResponse(from, nil)
	require.NoError(w.T, err)
	require.NoError(w.T, response.Body.Close())
	require.Equal(w.T, http.StatusSwitchingProtocols, response.StatusCode)
	require.Equal(w.T, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", response.Header.Get("Sec-WebSocket-Accept"), "of RFC 6455")
	require.Empty(w.T, response.Header.Get("Sec-WebSocket-Extensions"))
	return &rawSocket{w.T, conn, from}
}

func frame(head byte, payload string) []byte {
	b := []byte{head}
	switch n := len(payload); {
	case n < 126:
		b = append(b, 0x80|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(n))
	}
	mask := []byte{1, 2, 3, 4}
	b = append(b, mask...)
	for i := range len(payload) {
		b = append(b, payload[i]^mask[i%4])
	}
	return b
}

func (s *rawSocket) write(b ...[]byte) {
	s.t.Helper()
	_, err := s.conn.Write(bytes.Join(b, nil))
	require.NoError(s.t, err)
}

// next returns the next frame from the server: its first byte and its payload.
func (s *rawSocket) next() (head byte, payload string) {
	s.t.Helper()
	var start [2]byte
	_, err := io.ReadFull(s.from, start[:])
	require.NoError(s.t, err)
	require.Zero(s.t, start[1]&0x80, "a server does not mask")
	n := int(start[1])
	if n == 126 {
		var size [2]byte
		_, err = io.ReadFull(s.from, size[:])
		require.NoError(s.t, err)
		n = int(binary.BigEndian.Uint16(size[:]))
	}
	content := make([]byte, n)
	_, err = io.ReadFull(s.from, content)
	require.NoError(s.t, err)
	return start[0], string(content)
}

// closed waits for a close frame with a code, and for the end of the connection.
func (s *rawSocket) closed(code int) {
	s.t.Helper()
	for {
		head, payload := s.next()
		if head != fin|opClose {
			continue
		}
		if code == 0 {
			require.Empty(s.t, payload)
		} else {
			require.Equal(s.t, code, int(binary.BigEndian.Uint16([]byte(payload))), "%s", payload[2:])
		}
		break
	}
	_, err := s.from.ReadByte()
	require.ErrorIs(s.t, err, io.EOF)
}

// helloFrame is a first frame.
const helloFrame = `{"hello":{"user":"alice","grace_ms":0}}`

// TestConnectProtocol sends good and bad frames of RFC 6455. The numbers are those of the cases of the Autobahn test
// suite that a row stands for.
func TestConnectProtocol(t *testing.T) {
	w := apitest.NewSocketServer(t)
	const text, end = `{"hello":{"watch":{}}}`, fin | opMore
	hello, first, rest := frame(fin|opText, text), text[:8], text[8:]
	padded := func(n int) []byte { return frame(fin|opText, first+strings.Repeat(" ", n)+rest) }
	welcomed := func(s *rawSocket) {
		s.t.Helper()
		head, payload := s.next()
		require.EqualValues(s.t, fin|opText, head)
		require.True(s.t, strings.HasPrefix(payload, `{"welcome":`), payload)
	}
	ponged := func(want string) func(*rawSocket) {
		return func(s *rawSocket) {
			s.t.Helper()
			head, payload := s.next()
			require.EqualValues(s.t, fin|opPong, head)
			require.Equal(s.t, want, payload)
		}
	}
	closed := func(code int) func(*rawSocket) { return func(s *rawSocket) { s.t.Helper(); s.closed(code) } }
	all := func(checks ...func(*rawSocket)) []func(*rawSocket) { return checks }
	join := func(frames ...[]byte) []byte { return bytes.Join(frames, nil) }
	x := func(n int) string { return strings.Repeat("x", n) }
	ping, bye := func(payload string) []byte { return frame(fin|opPing, payload) }, func(payload string) []byte {
		return frame(fin|opClose, payload)
	}
	user := func(bytes string) []byte { return frame(fin|opText, `{"hello":{"user":"`+bytes+`"}}`) }
	pieces := func(text string) (fragments []byte) {
		head := byte(opText)
		for i := range len(text) {
			if i == len(text)-1 {
				head |= fin
			}
			fragments, head = append(fragments, frame(head, text[i:i+1])...), opMore
		}
		return fragments
	}
	announced := func(length byte, payload string) []byte {
		return append([]byte{fin | opText, 0x80 | 127, length, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4}, payload...)
	}
	for name, c := range map[string]struct {
		sent   []byte
		checks []func(*rawSocket)
	}{
		"1.1.1 text":                         {hello, all(welcomed)},
		"1.1.3 text with a length of 16 bit": {padded(200), all(welcomed)},
		"1.1.6 a large text":                 {padded(15_000), all(welcomed)},
		"1.1.8 text in two writes":           {hello, all(welcomed)},
		"1.2.1 binary":                       {frame(fin|opBinary, text), all(closed(4400))},
		"2.1 ping without payload":           {ping(""), all(ponged(""))},
		"2.2 ping":                           {ping("abc"), all(ponged("abc"))},
		"2.3 ping of bytes":                  {ping("\x00\xff\xfe"), all(ponged("\x00\xff\xfe"))},
		"2.4 ping of 125 bytes":              {ping(x(125)), all(ponged(x(125)))},
		"2.5 ping of 126 bytes":              {ping(x(126)), all(closed(1002))},
		"2.7 unsolicited pong":               {join(frame(fin|opPong, "x"), hello), all(welcomed)},
		"2.10 ten pings":                     {bytes.Repeat(ping("x"), 10), all(ponged("x"), ponged("x"))},
		"3.1 reserved bit 1":                 {frame(fin|0x40|opText, text), all(closed(1002))},
		"3.2 reserved bit 2":                 {frame(fin|0x20|opText, text), all(closed(1002))},
		"3.3 reserved bit 3":                 {frame(fin|0x10|opText, text), all(closed(1002))},
		"3.6 reserved bits of a ping":        {frame(fin|0x70|opPing, ""), all(closed(1002))},
		"4.1.1 opcode 3":                     {frame(fin|0x3, ""), all(closed(1002))},
		"4.1.5 opcode 7 after a text":        {join(hello, frame(fin|0x7, "x")), all(welcomed, closed(1002))},
		"4.2.1 opcode 11":                    {frame(fin|0xB, ""), all(closed(1002))},
		"5.1 fragmented ping":                {frame(opPing, "x"), all(closed(1002))},
		"5.2 fragmented pong":                {frame(opPong, "x"), all(closed(1002))},
		"5.3 two fragments":                  {join(frame(opText, first), frame(end, rest)), all(welcomed)},
		"5.5 fragments of one byte":          {pieces(`{"hello":{}}`), all(welcomed)},
		"5.6 a ping between fragments":       {join(frame(opText, first), ping("p"), frame(end, rest)), all(ponged("p"), welcomed)},
		"5.9 continuation of nothing":        {frame(end, "x"), all(closed(1002))},
		"5.13 continuation afterwards":       {join(hello, frame(opMore, "x")), all(welcomed, closed(1002))},
		"5.18 text between fragments":        {join(frame(opText, first), frame(fin|opText, rest)), all(closed(1002))},
		"6.1 empty fragments": {
			join(frame(opText, ""), frame(opMore, text), frame(opMore, ""), frame(end, "")), all(welcomed),
		},
		"6.2 UTF-8 cut between fragments": {
			join(frame(opText, "{\"hello\":{\"user\":\"\xc3"), frame(end, "\xa9\"}}")), all(welcomed),
		},
		"6.3 invalid UTF-8": {user("\xce\xba\xe1\xbd\xb9\xcf\x83\xed\xa0\x80"), all(closed(4400))},
		"6.4 invalid UTF-8, cut": {
			join(frame(opText, "{\"hello\":{\"user\":\"\xf4\x90"), frame(end, "\x80\x80\"}}")), all(closed(4400)),
		},
		"6.10 overlong UTF-8":             {user("\xc0\xaf"), all(closed(4400))},
		"7.1.1 text and close":            {join(hello, bye("\x03\xe8")), all(welcomed, closed(1000))},
		"7.1.3 ping after close":          {join(bye("\x03\xe8"), ping("")), all(closed(1000))},
		"7.3.1 close without a code":      {bye(""), all(closed(0))},
		"7.3.2 close of one byte":         {bye("x"), all(closed(0))},
		"7.3.4 close with a reason":       {bye("\x03\xe8bye"), all(closed(1000))},
		"7.3.6 close of 126 bytes":        {bye("\x03\xe8" + x(124)), all(closed(1002))},
		"7.5.1 reason of bad UTF-8":       {bye("\x03\xe8\xce\xba\xed\xa0\x80"), all(closed(1002))},
		"7.7.5 close 1007":                {bye("\x03\xef"), all(closed(1007))},
		"7.7.9 close 3000":                {bye("\x0b\xb8"), all(closed(3000))},
		"7.9.1 close 0":                   {bye("\x00\x00"), all(closed(1002))},
		"7.9.4 close 1005":                {bye("\x03\xed"), all(closed(1002))},
		"7.9.9 close 2999":                {bye("\x0b\xb7"), all(closed(1002))},
		"9.1 a frame of 1 MiB":            {frame(fin|opText, x(1<<20)), all(closed(4413))},
		"9.2 an announced frame of 4 EiB": {announced(0x40, x(kit.MaxHello+1)), all(closed(4413))},
		"9.3 a negative length":           {announced(0xff, ""), all(closed(1002))},
		"an unmasked frame":               {[]byte{fin | opText, 2, '{', '}'}, all(closed(1002))},
		"endless empty fragments": {
			join(frame(opText, "{"), bytes.Repeat(frame(opMore, ""), 20_000)), all(closed(4413)),
		},
		"a flood of empty messages": {bytes.Repeat(ping(""), 4*kit.FrameBurst), all(closed(4429))},
	} {
		t.Run(name, func(t *testing.T) {
			s := dialRaw(w)
			s.t = t
			sent := c.sent
			if strings.HasPrefix(name, "1.1.8") {
				s.write(sent[:7])
				sent = sent[7:]
			}
			go func() { _, _ = s.conn.Write(sent) }() // the server may stop reading
			for _, check := range c.checks {
				check(s)
			}
		})
	}
}

// TestConnectEarlyData: what a client sends before the response belongs to no message yet, and ends the connection.
func TestConnectEarlyData(t *testing.T) {
	w := apitest.NewSocketServer(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.URL, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write(append([]byte("GET /v1/namespaces/chat/connect HTTP/1.1\r\nHost: localhost\r\n"+
		strings.Join(kit.UpgradeHeaders(), "\r\n")+"\r\n\r\n"), frame(fin|opText, helloFrame)...))
	require.NoError(t, err)
	require.NoError(t, conn.SetDeadline(time.Now().Add(kit.Eventually)))
	_, err = io.ReadAll(conn)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	w.AwaitSockets(0)
}

// TestConnectReset: a connection that is reset is a leave, too.
func TestConnectReset(t *testing.T) {
	w := apitest.NewSocketServer(t)
	s := dialRaw(w)
	s.write(frame(fin|opText, helloFrame))
	s.next()
	require.NoError(t, s.conn.(*net.TCPConn).SetLinger(0))
	require.NoError(t, s.conn.Close())
	w.AwaitAlice("left", true)
}

// TestConnectOtherClient connects a client of another make, which offers compression.
func TestConnectOtherClient(t *testing.T) {
	w := apitest.NewSocketServer(t)
	ctx, cancel := context.WithTimeout(t.Context(), kit.Eventually)
	defer cancel()
	conn, response, err := coder.Dial(ctx, w.SocketURL("chat"), &coder.DialOptions{
		Subprotocols: []string{"lastseen.v1"}, CompressionMode: coder.CompressionContextTakeover,
	})
	require.NoError(t, err)
	if response.Body != nil {
		defer response.Body.Close()
	}
	require.Empty(t, response.Header.Get("Sec-WebSocket-Extensions"))
	require.Equal(t, "lastseen.v1", conn.Subprotocol())
	require.NoError(t, conn.Write(ctx, coder.MessageText, []byte(helloFrame)))
	kind, text, err := conn.Read(ctx)
	require.NoError(t, err)
	require.Equal(t, coder.MessageText, kind)
	kit.CheckFrame(t, "server", text)
	done := conn.CloseRead(ctx)
	require.NoError(t, conn.Ping(ctx))
	require.NoError(t, conn.Close(coder.StatusNormalClosure, "bye"))
	<-done.Done()
	w.AwaitAlice("left", true)
}
