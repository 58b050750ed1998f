package request

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
)

// FuzzMetadata checks that the end of an object is found where it is.
func FuzzMetadata(f *testing.F) {
	for _, seed := range []string{`{}`, `{"a":"}\"{"}`, `{"a":{"b":[{}]}}`, `{"\\":1}`, `{"é":"\ud83d\ude00"}`, `{"a`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		value := jsontext.Value(data)
		if !value.IsValid() || data[0] != '{' {
			return
		}
		end := strings.LastIndexByte(string(data), '}')
		for cut := range end + 1 {
			require.False(t, endsWithin(data[:cut]) && cut > 0, "%q", data[:cut])
		}
		require.True(t, endsWithin(data[:end+1]))
	})
}
