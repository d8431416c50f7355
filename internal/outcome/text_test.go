package outcome_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oxbow-jobs/oxbow/internal/outcome"
)

func TestCredentialsAreMasked(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"postgres://app:hunter2@db:5432/x refused":            "postgres://app:***@db:5432/x refused",
		"redis://default:pa55@wordH@h:6379/0":                 "redis://default:***@h:6379/0",
		"amqp://u:a/b@c?d@h and amqp://v:w@i":                 "amqp://u:***@h and amqp://v:***@i",
		"redis://:pw@h":                                       "redis://:***@h",
		`dial "postgres://a:b@c/d": "e@f"`:                    `dial "postgres://a:***@c/d": "e@f"`,
		"clone https://ghp_abcdef0123@github.com/x/y":         "clone https://***@github.com/x/y",
		"GET https://b.example/c?sv=1&sig=a%2Fb%3D&se=2: 403": "GET https://b.example/c?sv=1&sig=***&se=2: 403",
		"https://s3/x?X-Amz-Signature=abc123":                 "https://s3/x?X-Amz-Signature=***",
		"Authorization: Bearer abcdefgh.ijk-l":                "Authorization: Bearer ***",
		"authorization: basic dXNlcjpwYXNz":                   "authorization: basic ***",
		"password=hunter2 host=db":                            "password=*** host=db",
		`{"password":"two words","user":"ann"}`:               `{"password":***,"user":"ann"}`,
		`{"password": "a \"quoted\" word", "n": 1}`:           `{"password": ***, "n": 1}`,
		"secret = 'two words' next":                           "secret = *** next",
		"https://x/cb?access_token=abc&state=1":               "https://x/cb?access_token=***&state=1",
		"client_secret: abc, scope: all":                      "client_secret: ***, scope: all",
		"aws_secret_access_key=AbC/123+x":                     "aws_secret_access_key=***",
		"AWS_ACCESS_KEY_ID=AKIA1 region=eu":                   "AWS_ACCESS_KEY_ID=*** region=eu",
		"pgpassword=hunter2":                                  "pgpassword=***",
		"PGPASSWORD=hunter2 psql":                             "PGPASSWORD=*** psql",
		"x-api-key: 123":                                      "x-api-key: ***",
		"refresh_token=abc;id_token=def":                      "refresh_token=***;id_token=***",
		"Cookie: session=abc; other=def\nHost: x":             "Cookie: ***\nHost: x",
		"Set-Cookie: id=a3fWa; Path=/; Secure":                "Set-Cookie: ***",
		"sslpassword=x clientSecret: y accessToken=z":         "sslpassword=*** clientSecret: *** accessToken=***",
		`password="unfinished`:                                `password=***`,
	} {
		require.Equal(t, want, outcome.StorableText(text))
		require.Equal(t, want, outcome.StorableText(want), "once is enough")
	}
}

func TestOrdinaryTextStays(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"",
		"the password is wrong",
		"tokens: 3 of 5 used", "unexpected token at line 3", "keyword = x", "monkey=1", "secretary: Ann", "signal=9",
		"user ann@example.com not found at https://example.com/users?mail=ann@example.com",
		"https://example.com:8080/path", "http://localhost:1/a: connection refused", "dial tcp [::1]:5432: connect",
		"a design=x and sig=y outside of a URL",
		"basic auth is off", "the bearer left",
		"cookies are disabled", "idempotency key=abc", "primary key: id", "duplicate key (id)=(7)",
		"side effect \"charge\": 409: {\"id\": \"a:b@c\"}",
	} {
		require.Equal(t, text, outcome.StorableText(text))
	}
	require.Equal(t, "no", outcome.ErrorText(errors.New("no")))
}
