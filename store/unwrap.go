package store

// As returns s if it is a T, and otherwise the first T among the stores that it wraps, from the outside in; false if
// there is none. A store that wraps another one has a method Unwrap that returns it.
func As[T any](s Store) (found T, ok bool) {
	for s != nil {
		if found, ok = s.(T); ok {
			return found, true
		}
		wrapper, wraps := s.(interface{ Unwrap() Store })
		if !wraps {
			break
		}
		s = wrapper.Unwrap()
	}
	return found, false
}
