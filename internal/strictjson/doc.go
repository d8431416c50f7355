// Package strictjson refuses in Go what a database or a broker would refuse
// later: JSON with NUL characters, broken surrogates, invalid UTF-8, duplicate
// keys, too much nesting or numbers that grow when they are read back. It also
// marshals and compares values without losing digits.
//
// It imports no other package of this module.
package strictjson
