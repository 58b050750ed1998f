package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRetentionSetting(t *testing.T) {
	s := start(t, "--retention", "1h")
	require.EqualValues(t, 3_600_000, s.get(t, "/v1/namespaces/any")["retention_ms"])
	s.post(t, "/v1/namespaces/chat/users/alice/ping", `{"at":100123}`)
	require.Nil(t, start(t, "--retention", "off").get(t, "/v1/namespaces/any")["retention_ms"])

	code, _, stderr := execute(t, "--retention", "4m")
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "--retention")
}
