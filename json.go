package lastseen

import (
	"errors"
	"fmt"
)

// MaxDepth is how many levels of objects and arrays JSON from clients can have. What they store for other clients is
// read by parsers that have their own limits, or overflow their stack.
const MaxDepth = 32

// What [CheckJSON] returns.
var (
	ErrTooDeep      = fmt.Errorf("more than %d levels of objects and arrays", MaxDepth)
	ErrTooManyItems = errors.New("too many items in an array")
)

// CheckJSON returns [ErrTooDeep] if a text has more than [MaxDepth] levels of objects and arrays, and
// [ErrTooManyItems] if an array in its object has more than maxItems. It is called before the text is parsed, which
// takes time for each level and item. The text need not be valid.
func CheckJSON(text []byte, maxItems int) error {
	depth, inString := 0, false
	inList, commas := false, 0 // of an array in the object
	for i := 0; i < len(text); i++ {
		switch b := text[i]; {
		case b == '"':
			inString = !inString
		case inString:
			if b == '\\' {
				i++
			}
		case b == '{' || b == '[':
			if depth++; depth > MaxDepth {
				return ErrTooDeep
			}
			if depth == 2 {
				inList, commas = b == '[', 0
			}
		case b == ',' && depth == 2 && inList:
			if commas++; commas == maxItems {
				return ErrTooManyItems
			}
		case b == '}' || b == ']':
			depth--
		}
	}
	return nil
}
