// Command kill passes two points three times each.
package main

import (
	"fmt"

	"github.com/triggerd/triggerd/failpoint"
)

func main() {
	for i := range 3 {
		failpoint.Hit(failpoint.BeforeAppend)
		fmt.Println("before", i)
		failpoint.Hit(failpoint.AfterAppend)
		fmt.Println("after", i)
	}
}
