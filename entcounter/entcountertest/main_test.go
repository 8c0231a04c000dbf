package entcountertest_test

import (
	"os"
	"testing"

	"github.com/entcounter/entcounter/internal/testdb"
)

func TestMain(m *testing.M) { os.Exit(testdb.Main(m)) }
