package lastseen_test

import (
	"testing"

	"github.com/lastseen/lastseen"
)

// BenchmarkAppend writes one time; there are two of them in every answer about a user.
func BenchmarkAppend(b *testing.B) {
	buffer := make([]byte, 0, 32)
	at := lastseen.Instant(1_795_212_000_123)
	b.ReportAllocs()
	for b.Loop() {
		buffer = at.Append(buffer[:0])
		at += 37
	}
}

// BenchmarkCheckUser checks one name, as every request about a user does.
func BenchmarkCheckUser(b *testing.B) {
	for name, user := range map[string]string{"ascii": "0123456789abcdef", "other": "Ærøskøbing Søren"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := lastseen.CheckUser(user); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
