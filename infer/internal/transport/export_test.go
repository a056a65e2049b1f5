package transport

import "time"

// TellAfter sets how long a server may be silent before it is told of.
func TellAfter(c *Client, d time.Duration) { c.tellAfter = d }
