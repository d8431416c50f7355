package dburl

// HasPoolSize is for tests from outside.
func HasPoolSize(t *Target) bool { return t.hasPoolSize() }
