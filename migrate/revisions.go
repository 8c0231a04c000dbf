package main

import (
	"context"
	stdsql "database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"ariga.io/atlas/sql/migrate"
	"ariga.io/atlas/sql/schema"
	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	entschema "entgo.io/ent/dialect/sql/schema"
	"entgo.io/ent/schema/field"
)

// revisionsTable is the table of the Atlas command line: either program goes on where the other stopped.
var revisionsTable = entschema.NewTable("atlas_schema_revisions").
	AddPrimary(&entschema.Column{Name: "version", Type: field.TypeString}).
	AddColumn(&entschema.Column{Name: "description", Type: field.TypeString}).
	AddColumn(&entschema.Column{Name: "type", Type: field.TypeUint, Default: uint(migrate.RevisionTypeExecute)}).
	AddColumn(&entschema.Column{Name: "applied", Type: field.TypeInt, Default: 0}).
	AddColumn(&entschema.Column{Name: "total", Type: field.TypeInt, Default: 0}).
	AddColumn(&entschema.Column{Name: "executed_at", Type: field.TypeTime}).
	AddColumn(&entschema.Column{Name: "execution_time", Type: field.TypeInt64}).
	AddColumn(&entschema.Column{Name: "error", Type: field.TypeString, Nullable: true, Size: 2147483647}).
	AddColumn(&entschema.Column{Name: "error_stmt", Type: field.TypeString, Nullable: true, Size: 2147483647}).
	AddColumn(&entschema.Column{Name: "hash", Type: field.TypeString}).
	AddColumn(&entschema.Column{Name: "partial_hashes", Type: field.TypeJSON, Nullable: true}).
	AddColumn(&entschema.Column{Name: "operator_version", Type: field.TypeString})

const (
	// atlasCloudID is the version of a row in which Atlas keeps something else.
	atlasCloudID = ".atlas_cloud_identifier"
	// sqliteTime is how SQLite drivers write times, the Atlas command line's among them.
	sqliteTime = "2006-01-02 15:04:05.999999999-07:00"
)

// revisions implements [migrate.RevisionReadWriter] on a connection or transaction.
type revisions struct {
	schema.ExecQuerier
	dialect string
	dry     bool              // writes nothing
	absent  bool              // the table is not there yet
	started *migrate.Revision // the first that was written
}

// revisionsIn returns the revisions of the database as they can be read now.
func revisionsIn(ctx context.Context, d *database, drv migrate.Driver) (*revisions, error) {
	s, err := drv.InspectSchema(ctx, "", &schema.InspectOptions{Mode: schema.InspectTables, Tables: []string{revisionsTable.Name}})
	if err != nil {
		return nil, err
	}
	_, there := s.Table(revisionsTable.Name)
	return &revisions{ExecQuerier: drv, dialect: d.Dialect, absent: !there}, nil
}

// createRevisions creates the table unless it is there.
func createRevisions(ctx context.Context, d *database, drv migrate.Driver, table *schema.Table) (*revisions, error) {
	revs, err := revisionsIn(ctx, d, drv)
	if err != nil || !revs.absent {
		return revs, err
	}
	if err := drv.ApplyChanges(ctx, []schema.Change{&schema.AddTable{T: table}}); err != nil {
		return nil, fmt.Errorf("creating the table %s: %w", revisionsTable.Name, err)
	}
	revs.absent = false
	return revs, nil
}

// record writes what the transaction of a file that failed has taken back.
func (d *database) record(ctx context.Context, table *schema.Table, rev *migrate.Revision) error {
	tx, err := d.begin(ctx)
	if err != nil {
		return err
	}
	revs, err := createRevisions(ctx, d, tx.Driver, table)
	if err == nil {
		err = revs.WriteRevision(ctx, rev)
	}
	if err != nil {
		return errors.Join(err, tx.rollback())
	}
	return tx.commit()
}

// atlasTable returns the table as ent creates it on the database.
func atlasTable(ctx context.Context, d *database, table *entschema.Table) (*schema.Table, error) {
	m, err := entschema.NewMigrate(d.ent())
	if err != nil {
		return nil, err
	}
	realm, err := m.StateReader(table).ReadState(ctx)
	if err != nil {
		return nil, err
	}
	t := realm.Schemas[0].Tables[0]
	t.Schema = nil // that of the connection
	return t, nil
}

func (r *revisions) Ident() *migrate.TableIdent {
	return &migrate.TableIdent{Name: revisionsTable.Name}
}

func (r *revisions) ReadRevisions(ctx context.Context) ([]*migrate.Revision, error) {
	return r.read(ctx, entsql.NEQ("version", atlasCloudID))
}

func (r *revisions) ReadRevision(ctx context.Context, version string) (*migrate.Revision, error) {
	all, err := r.read(ctx, entsql.EQ("version", version))
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, migrate.ErrRevisionNotExist
	}
	return all[0], nil
}

func (r *revisions) read(ctx context.Context, where *entsql.Predicate) (all []*migrate.Revision, err error) {
	if r.absent {
		return nil, nil
	}
	query, args := entsql.Dialect(r.dialect).Select(revisionColumns()...).From(entsql.Table(revisionsTable.Name)).
		Where(where).OrderBy("version").Query()
	rows, err := r.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var (
			rev             migrate.Revision
			kind            uint64
			duration        int64
			fault, stmt     stdsql.NullString
			partial, hashes = []byte(nil), []string(nil)
		)
		if err := rows.Scan(&rev.Version, &rev.Description, &kind, &rev.Applied, &rev.Total, &rev.ExecutedAt, &duration,
			&fault, &stmt, &rev.Hash, &partial, &rev.OperatorVersion); err != nil {
			return nil, err
		}
		if partial != nil {
			if err := json.Unmarshal(partial, &hashes); err != nil {
				return nil, fmt.Errorf("revision %s: partial_hashes: %w", rev.Version, err)
			}
		}
		rev.Type, rev.ExecutionTime = migrate.RevisionType(kind), time.Duration(duration)
		rev.Error, rev.ErrorStmt, rev.PartialHashes = fault.String, stmt.String, hashes
		all = append(all, &rev)
	}
	return all, rows.Err()
}

func (r *revisions) WriteRevision(ctx context.Context, rev *migrate.Revision) error {
	if r.dry {
		return nil
	}
	if r.started == nil {
		first := *rev
		r.started = &first
	}
	var partial any
	if len(rev.PartialHashes) > 0 {
		text, err := json.Marshal(rev.PartialHashes)
		if err != nil {
			return err
		}
		partial = string(text)
	}
	var executedAt any = rev.ExecutedAt
	if r.dialect == dialect.SQLite {
		executedAt = rev.ExecutedAt.Format(sqliteTime)
	}
	query, args := entsql.Dialect(r.dialect).Insert(revisionsTable.Name).Columns(revisionColumns()...).
		Values(rev.Version, rev.Description, uint64(rev.Type), rev.Applied, rev.Total, executedAt, int64(rev.ExecutionTime),
			rev.Error, rev.ErrorStmt, rev.Hash, partial, rev.OperatorVersion).
		OnConflict(entsql.ConflictColumns("version"), entsql.ResolveWithNewValues()).Query()
	_, err := r.ExecContext(ctx, query, args...)
	return err
}

func (r *revisions) DeleteRevision(ctx context.Context, version string) error {
	query, args := entsql.Dialect(r.dialect).Delete(revisionsTable.Name).Where(entsql.EQ("version", version)).Query()
	_, err := r.ExecContext(ctx, query, args...)
	return err
}

func revisionColumns() []string {
	names := make([]string, len(revisionsTable.Columns))
	for i, c := range revisionsTable.Columns {
		names[i] = c.Name
	}
	return names
}

var _ migrate.RevisionReadWriter = (*revisions)(nil)
