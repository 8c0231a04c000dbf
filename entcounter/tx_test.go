package entcounter

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRollsBackTo(t *testing.T) {
	for _, query := range []string{
		"ROLLBACK TO s", "rollback to savepoint s", "ROLLBACK WORK TO s", "ROLLBACK TRANSACTION TO SAVEPOINT s;",
		" \n ROLLBACK  TO\ts ;", "-- x\nROLLBACK TO s", "/* c */ ROLLBACK /* d */ TO `s`", "# x\nROLLBACK TO s", `ROLLBACK TO "s"`,
	} {
		require.True(t, rollsBackTo(query), query)
	}
	for _, query := range []string{
		"", "ROLLBACK", "ROLLBACK WORK", "SAVEPOINT s", "RELEASE SAVEPOINT s", "SELECT 'ROLLBACK TO s'", "/* ROLLBACK TO s */ SELECT 1",
		"/* ROLLBACK TO s", "ROLLBACK TO s; DELETE FROM files", "SELECT 1; ROLLBACK TO s", "ROLLBACK TRANSACTION", "ROLLBACK AND CHAIN",
	} {
		require.False(t, rollsBackTo(query), query)
	}
}
