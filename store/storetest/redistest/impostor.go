package redistest

import (
	"bufio"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// StartImpostor returns the URL of a fake that replies to INFO with the given text and everything else with PONG. It
// stands for servers that are too old, or not Redis, which are not available wherever the tests run.
func StartImpostor(t testing.TB, info string) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	var serving sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	t.Cleanup(func() {
		listener.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, conn := range conns {
			_ = conn.Close()
		}
		serving.Wait()
	})
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			serving.Go(func() { impersonate(conn, info) })
		}
	})
	return "redis://" + listener.Addr().String()
}

func impersonate(conn net.Conn, info string) {
	r := bufio.NewReader(conn)
	for {
		var command []string
		head, err := r.ReadString('\n') // *n, and then n times $length and the text
		n, _ := strconv.Atoi(strings.Trim(head, "*\r\n"))
		for range 2 * n {
			var line string
			line, err = r.ReadString('\n')
			command = append(command, strings.ToLower(strings.TrimSpace(line)))
		}
		if err != nil {
			return
		}
		switch command[1] {
		case "hello":
			fmt.Fprintf(conn, "-ERR unknown command `HELLO`\r\n")
		case "info":
			fmt.Fprintf(conn, "$%d\r\n%s\r\n", len(info), info)
		default:
			fmt.Fprintf(conn, "+PONG\r\n")
		}
	}
}
