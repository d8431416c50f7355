package guard

// reserved is how deep an attempt usually gets, in bytes of stack.
const reserved = 6 << 10

// ReserveStack makes the stack of a new goroutine as large as an attempt will
// need. Go doubles a stack whenever it is full and corrects every frame on it
// each time; called while there are few frames, this does it once. Inlined, the
// room would stay in the caller's frame.
//
//go:noinline
func ReserveStack() {
	var room [reserved]byte
	touch(&room)
}

//go:noinline
func touch(room *[reserved]byte) { room[0] = 1 }
