package constraint

// Expressions of the formats, each of the decoded string as a whole. The grammars are those
// that JSON Schema refers to, without comments and internationalized names.
const (
	year4 = `(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)` // leap years
	date  = `(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|` +
		`(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|` + year4 + `-02-29)`
	hourMinute = `(?:[01][0-9]|2[0-3]):[0-5][0-9]`
	clock      = hourMinute + `:[0-5][0-9](?:\.[0-9]{1,9})?(?:Z|[-+]` + hourMinute + `)`

	// A host has at most 253 characters: 7 labels of 35.
	label = `[a-zA-Z0-9](?:[-a-zA-Z0-9]{0,33}[a-zA-Z0-9])?`
	host  = label + `(?:\.` + label + `){0,6}`
	// The local part of an address has at most 64 characters: up to three words.
	word  = "[-a-zA-Z0-9!#$%&'*+/=?^_`{|}~]"
	local = `(?:` + word + `{1,64}|` + word + `{1,31}\.` + word + `{1,32}|` + word + `{1,20}(?:\.` + word + `{1,21}){2})`

	byte8 = `(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])`
	ipv4  = byte8 + `(?:\.` + byte8 + `){3}`
	h16   = `[0-9a-fA-F]{1,4}`
	ls32  = `(?:` + h16 + `:` + h16 + `|` + ipv4 + `)`

	count = `[0-9]{1,9}`
)

// formats are the values of the keyword format that are enforced.
var formats = map[string]string{
	"date":      date,                                                   // RFC 3339, full-date
	"time":      clock,                                                  // RFC 3339, full-time, without leap seconds
	"date-time": date + `T` + clock,                                     // RFC 3339
	"duration":  duration,                                               // RFC 3339, appendix A
	"email":     local + `@` + host,                                     // RFC 5321, without quoted names
	"hostname":  host,                                                   // RFC 1123
	"ipv4":      ipv4,                                                   // RFC 2673
	"ipv6":      ipv6,                                                   // RFC 4291
	"uuid":      `[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`, // RFC 4122
}

const (
	minutes  = `(?:` + count + `M(?:` + count + `S)?|` + count + `S)`
	times    = `T(?:` + count + `H(?:` + minutes + `)?|` + minutes + `)`
	days     = count + `D`
	months   = count + `M(?:` + days + `)?`
	dates    = `(?:` + count + `Y(?:` + months + `)?|` + months + `|` + days + `)`
	duration = `P(?:` + dates + `(?:` + times + `)?|` + times + `|` + count + `W)`

	ipv6 = `(?:(?:` + h16 + `:){6}` + ls32 +
		`|::(?:` + h16 + `:){5}` + ls32 +
		`|(?:` + h16 + `)?::(?:` + h16 + `:){4}` + ls32 +
		`|(?:(?:` + h16 + `:){0,1}` + h16 + `)?::(?:` + h16 + `:){3}` + ls32 +
		`|(?:(?:` + h16 + `:){0,2}` + h16 + `)?::(?:` + h16 + `:){2}` + ls32 +
		`|(?:(?:` + h16 + `:){0,3}` + h16 + `)?::` + h16 + `:` + ls32 +
		`|(?:(?:` + h16 + `:){0,4}` + h16 + `)?::` + ls32 +
		`|(?:(?:` + h16 + `:){0,5}` + h16 + `)?::` + h16 +
		`|(?:(?:` + h16 + `:){0,6}` + h16 + `)?::)`
)
