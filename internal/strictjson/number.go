package strictjson

import (
	"bytes"
	"math"
	"strconv"
)

// decimal is a number literal as sign, significant digits and the power of ten
// that they are multiplied with.
type decimal struct {
	negative bool
	digits   string // no leading or trailing zeros; empty for zero
	exponent int
}

// parts splits a valid number literal into its integer and fraction digits and
// its exponent, which is capped far beyond every limit.
func parts(literal []byte) (negative bool, integer, fraction []byte, exponent int) {
	if literal[0] == '-' {
		negative, literal = true, literal[1:]
	}
	if i := bytes.IndexAny(literal, "eE"); i >= 0 {
		n, err := strconv.Atoi(string(literal[i+1:]))
		if err != nil || n > math.MaxInt32 || n < -math.MaxInt32 {
			n = math.MaxInt32
			if literal[i+1] == '-' {
				n = -math.MaxInt32
			}
		}
		literal, exponent = literal[:i], n
	}
	integer = literal
	if i := bytes.IndexByte(literal, '.'); i >= 0 {
		integer, fraction = literal[:i], literal[i+1:]
	}
	return negative, integer, fraction, exponent
}

// expandedDigits is how many digits a valid number literal has when it is
// written without an exponent, as databases return it.
func expandedDigits(literal []byte) int {
	_, integer, fraction, exponent := parts(literal)
	return max(len(integer)+exponent, 1) + max(len(fraction)-exponent, 0)
}

func parseDecimal(literal []byte) decimal {
	negative, integer, fraction, exponent := parts(literal)
	digits := string(integer) + string(fraction)
	exponent -= len(fraction)
	for len(digits) > 0 && digits[len(digits)-1] == '0' {
		digits = digits[:len(digits)-1]
		exponent++
	}
	for len(digits) > 0 && digits[0] == '0' {
		digits = digits[1:]
	}
	if digits == "" {
		return decimal{} // -0 is 0
	}
	return decimal{negative: negative, digits: digits, exponent: exponent}
}
