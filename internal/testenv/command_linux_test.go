package testenv

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// roleVar makes this program a process that a test starts: a parent, or the child of one.
const roleVar = "LASTSEEN_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVar) {
	case "parent":
		child := Command(os.Args[0])
		child.Env = append(os.Environ(), roleVar+"=child")
		child.ExtraFiles = []*os.File{os.NewFile(3, "held")}
		if err := child.Start(); err != nil {
			panic(err)
		}
		fmt.Println("started")
		time.Sleep(time.Hour)
	case "child":
		time.Sleep(time.Hour)
	default:
		os.Exit(m.Run())
	}
}

// TestChildrenEnd: a child ends when its parent is killed. Both hold a pipe, whose end is read when neither does.
func TestChildrenEnd(t *testing.T) {
	end, held, err := os.Pipe()
	require.NoError(t, err)
	defer end.Close()
	parent := Command(os.Args[0])
	parent.Env = append(os.Environ(), roleVar+"=parent")
	parent.ExtraFiles = []*os.File{held}
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	t.Cleanup(func() { _ = parent.Process.Kill() })
	require.NoError(t, held.Close())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "started\n", line)
	require.NoError(t, parent.Process.Kill())
	_ = parent.Wait() // reports the kill
	require.NoError(t, end.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err = end.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "the child is still there")
}
