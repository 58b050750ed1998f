package lastseen

import (
	"errors"
	"strconv"
	"strings"
)

var (
	errNotDecimal = errors.New("not a decimal number")
	errTooLarge   = errors.New("too large")
)

// maxDigits bounds thousandths to what an int64 holds whatever the digits are.
const maxDigits = 18

// parseDecimalMillis reads a decimal number ("12", "-0.5", "1.7e9") and returns it in thousandths,
// cut towards zero. It never goes through a float, so no digit is lost. Errors are errNotDecimal
// and errTooLarge.
func parseDecimalMillis(s string) (int64, error) {
	mantissa, exponent, err := splitExponent(s)
	if err != nil {
		return 0, err
	}
	unsigned := strings.TrimPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(unsigned, ".")
	if whole+fraction == "" || !allDigits(whole) || !allDigits(fraction) {
		return 0, errNotDecimal
	}
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return 0, nil
	}
	// The value is 0.digits × 10^point, so its thousandths are the first point+3 digits.
	point := len(digits) - len(fraction) + exponent
	kept := point + 3
	switch {
	case kept > maxDigits:
		return 0, errTooLarge
	case kept <= 0:
		return 0, nil
	case kept <= len(digits):
		digits = digits[:kept]
	default:
		digits += strings.Repeat("0", kept-len(digits))
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if unsigned != mantissa {
		n = -n
	}
	return n, err
}

// splitExponent separates "1.7e9" into "1.7" and 9.
func splitExponent(s string) (mantissa string, exponent int, err error) {
	i := strings.IndexAny(s, "eE")
	if i < 0 {
		return s, 0, nil
	}
	digits := s[i+1:]
	if len(digits) > 1 && (digits[0] == '+' || digits[0] == '-') {
		digits = digits[1:]
	}
	if digits == "" || len(digits) > 4 || !allDigits(digits) {
		return "", 0, errNotDecimal
	}
	exponent, err = strconv.Atoi(s[i+1:])
	return s[:i], exponent, err
}

func allDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}
