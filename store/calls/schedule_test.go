package calls

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestSchedule compares a schedule with a map.
func TestSchedule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s schedule[int]
		model := map[int]time.Duration{}
		keys, times := rapid.IntRange(0, 9), rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.IntRange(0, 20).Draw(t, "time"))
		})
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			key, at := keys.Draw(t, "key"), times.Draw(t, "at")
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				s.set(key, at)
				model[key] = at
			case 1:
				s.advance(key, at)
				if old, known := model[key]; !known || at < old {
					model[key] = at
				}
			case 2:
				s.remove(key)
				delete(model, key)
			case 3:
				first, due, ok := s.pop(at)
				if !ok {
					require.Positive(t, s.rest(at, time.Hour))
				} else {
					require.Equal(t, model[first], due)
					delete(model, first)
				}
				for _, d := range model {
					require.True(t, ok && d >= due || !ok && d > at)
				}
			}
			require.Equal(t, model[key] != 0 && model[key] > 7, s.after(key, 7))
			_, known := model[key]
			require.Equal(t, known, s.has(key))
			require.Len(t, s.queue, len(model))
		}
	})
}
