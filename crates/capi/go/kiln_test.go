package kiln

import (
	"os"
	"testing"
	"testing/fstest"
)

// TestFS checks an image, $IMAGE, by the rules of testing/fstest. It has the file $FILE.
func TestFS(t *testing.T) {
	image, err := Open(os.Getenv("IMAGE"))
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	if err := fstest.TestFS(image, os.Getenv("FILE")); err != nil {
		t.Fatal(err)
	}
	if _, err := image.Open("no/such/file"); !os.IsNotExist(err) {
		t.Fatal(err)
	}
}
