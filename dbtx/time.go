package dbtx

import (
	"fmt"
	"time"
)

// NullTime scans a time from either database: a timestamp column, or the text
// that an expression yields on SQLite. The zero value is NULL.
type NullTime struct{ time.Time }

// Scan implements sql.Scanner.
func (t *NullTime) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		t.Time = time.Time{}
		return nil
	case time.Time:
		t.Time = v.UTC()
		return nil
	case []byte:
		return t.parse(string(v))
	case string:
		return t.parse(v)
	}
	return fmt.Errorf("scan a time from %T", src)
}

func (t *NullTime) parse(text string) error {
	for _, layout := range []string{SQLiteTimeFormat, time.RFC3339Nano, "2006-01-02 15:04:05.999999999-07:00", "2006-01-02 15:04:05.999999999"} {
		if parsed, err := time.Parse(layout, text); err == nil {
			t.Time = parsed.UTC()
			return nil
		}
	}
	return fmt.Errorf("scan a time from %q", text)
}

// Ptr is nil for NULL.
func (t NullTime) Ptr() *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t.Time
}
