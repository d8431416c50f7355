package rabbitmq_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/rabbitmq"
)

// wire is a connection to read from.
type wire struct {
	net.Conn
	io.Reader
}

func (w wire) Read(p []byte) (int, error) { return w.Reader.Read(p) }

// filtered is what comes out of the filter.
func filtered(t testing.TB, in io.Reader, limit int64) []byte {
	t.Helper()
	out, err := io.ReadAll(rabbitmq.NewHeaderFilter(wire{Reader: in}, limit))
	require.NoError(t, err)
	return out
}

func frameOf(kind byte, payload string) string {
	head := binary.BigEndian.AppendUint32([]byte{kind, 0, 7}, uint32(len(payload)))
	return string(head) + payload + "\xce"
}

// headerOf is a content header with all that comes before the headers, and a
// message id after them.
func headerOf(table string) string {
	const all = 1<<15 | 1<<14 | 1<<13 | 1<<7
	head := binary.BigEndian.AppendUint16([]byte("\x00\x3c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05"), all)
	return frameOf(2, string(head)+short("text/json")+short("")+long(table)+short("id-1"))
}

func short(text string) string { return string([]byte{byte(len(text))}) + text }

func long(text string) string {
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(text)))) + text
}

// nested is the content of a table, or of an array, with as many within it.
func nested(kind string, depth int) string {
	content := ""
	for range depth {
		if content = kind + long(content); kind == "F" {
			content = short("d") + content
		}
	}
	return content
}

const tenantHeader = "\x0foxbow-tenant-idS\x00\x00\x00\x04acme"

func TestHeadersAreMadeReadable(t *testing.T) {
	t.Parallel()
	every := short("t") + "t\x01" + short("n") + "V" + short("l") + "l12345678" + short("D") + "D12345" + short("a") + "A" + long("s12u34I1234f1234") +
		short("x") + "x" + long("raw") + short("S") + "S" + long("text") + short("") + "T12345678"
	wrapped := func(field string) string { return tenantHeader + short("h") + field }
	tests := map[string]struct{ table, want string }{
		"NoHeaders":           {"", ""},
		"EveryType":           {every, every},
		"AsDeepAsItMayBe":     {nested("F", 32), nested("F", 32)},
		"ATableTooDeep":       {nested("F", 33), tooDeep(nested("F", 33), "dF\x00\x00\x00\x00", "dx\x00\x00\x00\x00")},
		"ArraysAsDeepAsMayBe": {wrapped("A" + long(nested("A", 31))), wrapped("A" + long(nested("A", 31)))},
		"AnArrayTooDeep":      {wrapped("A" + long(nested("A", 32))), wrapped(tooDeep("A"+long(nested("A", 32)), "A\x00\x00\x00\x00", "x\x00\x00\x00\x00"))},
		"TheBrokersLong":      {wrapped("L12345678"), wrapped("l12345678")},
		"ManyElements":        {wrapped("A" + long(strings.Repeat("V", 8192))), wrapped("A" + long(strings.Repeat("V", 8192)))},
		"TooManyElements":     {wrapped("A" + long(strings.Repeat("V", 8193))), wrapped("x" + long(strings.Repeat("V", 8193)))},
		"TooManyEntries":      {wrapped("F" + long(strings.Repeat("\x00V", 8193))), wrapped("x" + long(strings.Repeat("\x00V", 8193)))},
		"AnUnknownTypeWithin": {wrapped("F" + long("\x01kZ123")), wrapped("x" + long("\x01kZ123"))},
		"ALengthBeyond":       {wrapped("F" + long("\x01kS\xff\xff\xff\xff1")), wrapped("x" + long("\x01kS\xff\xff\xff\xff1"))},
		"AnUnknownType":       {wrapped("Z123"), replaced(wrapped("Z123"))},
		"ANameBeyond":         {"\xffshort", replaced("\xffshort")},
		"NoValue":             {"\x01k", replaced("\x01k")},
		"NoLength":            {"\x01kS\x00", replaced("\x01kS\x00")},
		"FarTooManyHeaders":   {strings.Repeat("\x00V", 8193), replaced(strings.Repeat("\x00V", 8193))},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			around := func(header string) string {
				return frameOf(1, "deliver") + header + frameOf(3, "{\x02\xce}") + frameOf(8, "") + headerOf(tenantHeader)
			}
			in, want := around(headerOf(test.table)), around(headerOf(test.want))
			for name, reader := range map[string]io.Reader{
				"at once": strings.NewReader(in), "by bytes": iotest.OneByteReader(strings.NewReader(in)), "by halves": iotest.HalfReader(strings.NewReader(in)),
			} {
				require.Equal(t, want, string(filtered(t, reader, 0)), name)
			}
		})
	}
}

// tooDeep replaces the last occurrence.
func tooDeep(text, old, with string) string {
	at := strings.LastIndex(text, old)
	return text[:at] + with + text[at+len(old):]
}

func replaced(table string) string { return short("oxbow-unreadable-headers") + "x" + long(table) }

// The broker adds headers of its own, and does not ask whether they still fit.
func TestHeadersLargerThanAFrameAreCut(t *testing.T) {
	t.Parallel()
	const limit = 4096
	for _, size := range []int{3000, 4000, 4050, 4100, 9000} {
		table := tenantHeader + short("big") + "S" + long(strings.Repeat("b", size))
		out := filtered(t, strings.NewReader(headerOf(table)), limit)
		require.LessOrEqual(t, len(out), limit)
		if len(headerOf(table)) <= limit {
			require.Equal(t, headerOf(table), string(out))
			continue
		}
		require.Len(t, out, limit)
		require.Contains(t, string(out), "oxbow-unreadable-headersx")
		require.Contains(t, string(out), tenantHeader)
		require.True(t, bytes.HasSuffix(out, []byte(short("id-1")+"\xce")))
	}
}

func TestReadableHeadersCostNoAllocation(t *testing.T) {
	header := headerOf(tenantHeader + nested("F", 32))
	f := rabbitmq.NewHeaderFilter(wire{Reader: &endless{text: header}}, 0)
	buf := make([]byte, len(header))
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = io.ReadFull(f, buf) }))
	require.Equal(t, header, string(buf))
}

// endless repeats a text.
type endless struct {
	text string
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.text[e.at:])
	e.at = (e.at + n) % len(e.text)
	return n, nil
}

// Whatever comes in: it does not depend on how it is cut, what came out is not
// changed by a second filter, and only header frames are changed.
func FuzzHeaderFilter(f *testing.F) {
	f.Add([]byte(headerOf(nested("F", 40))+frameOf(3, "body")), false)
	f.Add([]byte(headerOf(tenantHeader)+frameOf(1, "x")+headerOf("\x01kZ")), false)
	f.Add([]byte("AMQP\x00\x00\x09\x01"), false)
	f.Add([]byte("\x0200\x00000"), false)
	f.Add([]byte(tenantHeader+short("a")+"A"+long(nested("A", 40))), true)
	f.Add([]byte("\x01kF"+long("\x01kL12345678\x01jQ")), true)
	f.Fuzz(func(t *testing.T, data []byte, table bool) {
		if table {
			data = []byte(headerOf(string(data)) + frameOf(3, "body"))
		}
		out := filtered(t, bytes.NewReader(data), 0)
		require.Equal(t, out, filtered(t, iotest.OneByteReader(bytes.NewReader(data)), 0))
		require.Equal(t, out, filtered(t, bytes.NewReader(out), 0))
		if len(data) > 0 && data[0] != 2 {
			size := len(data)
			if size >= 7 {
				size = int(min(int64(size), 8+int64(binary.BigEndian.Uint32(data[3:]))))
			}
			require.Equal(t, data[:size], out[:size], "the first frame")
		}
		if table {
			require.True(t, bytes.HasSuffix(out, []byte(short("id-1")+"\xce"+frameOf(3, "body"))))
		}
	})
}
