package outbox

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/oxbow-jobs/oxbow/internal/strictjson"
)

const tenantMember = "tenant_id"

// foreignTenant finds the place where a payload names another tenant than its
// envelope: a member tenant_id, at any depth, whose text, number or boolean is
// not the envelope's. Null claims no tenant.
func foreignTenant(value any, tenant string) (path string, found bool) {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			if name == tenantMember {
				if text, ok := scalarText(member); ok && text != tenant {
					return strictjson.Member(name), true
				}
			}
			if below, found := foreignTenant(member, tenant); found {
				return strictjson.Member(name) + below, true
			}
		}
	case []any:
		for i, element := range v {
			if below, found := foreignTenant(element, tenant); found {
				return "[" + strconv.Itoa(i) + "]" + below, true
			}
		}
	}
	return "", false
}

// mayNameTenant is false if a JSON text has no member tenant_id, in any spelling.
func mayNameTenant(data []byte) bool {
	return bytes.Contains(data, []byte(tenantMember)) || bytes.IndexByte(data, '\\') >= 0
}

func scalarText(value any) (text string, ok bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case bool:
		return strconv.FormatBool(v), true
	}
	return "", false
}
