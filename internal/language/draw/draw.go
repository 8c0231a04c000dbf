// Package draw draws random mutations of the schema that has all that can be declared.
package draw

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	entsql "entgo.io/ent/dialect/sql"
	"github.com/entcounter/entcounter/internal/language/ent"
	"github.com/entcounter/entcounter/internal/language/ent/entry"
	"github.com/entcounter/entcounter/internal/language/ent/node"
	"github.com/entcounter/entcounter/internal/language/ent/parcel"
	"github.com/entcounter/entcounter/internal/language/ent/piece"
	"github.com/entcounter/entcounter/internal/language/ent/project"
	"github.com/entcounter/entcounter/internal/language/ent/user"
)

// Drawer draws random mutations.
type Drawer struct {
	*rand.Rand
	ctx context.Context
	c   *ent.Client
}

// New returns a drawer for one step of a seed: what it draws depends on nothing but
// these and the rows that it finds.
func New(ctx context.Context, c *ent.Client, seed, step uint64) *Drawer {
	return &Drawer{rand.New(rand.NewPCG(seed, step)), ctx, c}
}

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Maybe is true once in n times.
func (d *Drawer) Maybe(n int) bool { return d.IntN(n) == 0 }

func pick[T any](d *Drawer, from ...T) T { return from[d.IntN(len(from))] }

// some returns a few of the given ids.
func (d *Drawer) some(ids []int) []int {
	ids = slices.Clone(ids)
	d.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids[:min(len(ids), d.IntN(4))]
}

// any returns one of the ids, or one that does not exist.
func (d *Drawer) any(ids []int) int {
	if len(ids) == 0 {
		return 999_999
	}
	return ids[d.IntN(len(ids))]
}

func (d *Drawer) parcels() []int  { return must(d.c.Parcel.Query().IDs(d.ctx)) }
func (d *Drawer) pieces() []int   { return must(d.c.Piece.Query().IDs(d.ctx)) }
func (d *Drawer) projects() []int { return must(d.c.Project.Query().IDs(d.ctx)) }
func (d *Drawer) users() []int    { return must(d.c.User.Query().IDs(d.ctx)) }
func (d *Drawer) entries() []int  { return must(d.c.Entry.Query().IDs(d.ctx)) }
func (d *Drawer) terms() []int    { return must(d.c.Term.Query().IDs(d.ctx)) }
func (d *Drawer) tags() []int     { return must(d.c.Tag.Query().IDs(d.ctx)) }
func (d *Drawer) nodes() []int    { return must(d.c.Node.Query().IDs(d.ctx)) }
func (d *Drawer) code() string    { return fmt.Sprintf("c%d", d.IntN(4)) }

func (d *Drawer) at() time.Time {
	return noon.Add(time.Duration(d.IntN(5000)) * 37 * time.Minute).Truncate(time.Second)
}

// setPiece sets random fields of a piece.
func (d *Drawer) setPiece(m *ent.PieceMutation) {
	for range 1 + d.IntN(3) {
		switch d.IntN(18) {
		case 0:
			m.ResetKind()
			m.SetKind(pick(d, "a", "b", "c"))
		case 1:
			m.ResetKind()
			m.ClearKind()
		case 2:
			m.SetStage(pick(d, piece.StageRaw, piece.StageCooked, piece.StageEaten))
		case 3:
			m.ResetSize()
			m.SetSize(int64(10 * d.IntN(9)))
		case 4:
			m.ResetSize()
			if !m.Op().Is(ent.OpCreate) {
				m.AddSize(int64(d.IntN(30)))
			}
		case 5:
			m.ResetSize()
			m.ClearSize()
		case 6:
			m.SetPublished(d.Maybe(2))
		case 7:
			m.SetMadeAt(d.at())
		case 8:
			m.ResetLocalAt()
			m.SetLocalAt(d.at())
		case 9:
			m.ResetLocalAt()
			m.ClearLocalAt()
		case 10:
			m.SetScheduledAt(d.at())
		case 11:
			m.ResetDeletedAt()
			m.SetDeletedAt(d.at())
		case 12:
			m.ResetDeletedAt()
			m.ClearDeletedAt()
		case 13:
			m.SetPrice(float64(d.IntN(1000)) / 100)
		case 14:
			m.SetParcelID(d.any(d.parcels()))
		case 15:
			m.SetOwnerID(d.any(d.users()))
		case 16:
			m.SetReviewerID(d.any(d.users()))
		case 17:
			m.SetComment(d.code())
		}
	}
}

// newPiece returns a new piece, the nth of a batch.
func (d *Drawer) newPiece(n int) *ent.PieceCreate {
	b := d.c.Piece.Create().SetMadeAt(d.at())
	if d.Maybe(2) {
		b.SetSerial(fmt.Sprintf("s%d-%d", n, d.IntN(8)))
	}
	if parcels := d.parcels(); len(parcels) > 0 && !d.Maybe(5) {
		b.SetParcelID(d.any(parcels))
	}
	d.setPiece(b.Mutation())
	return b
}

// step runs one random mutation. Its error is one that ent alone would return too:
// a constraint that does not hold, a row that is not there.
func (d *Drawer) step() (string, error) {
	ctx, c := d.ctx, d.c
	switch n := d.IntN(40); n {
	case 0:
		return "create country", c.Country.Create().SetCode(d.code()).Exec(ctx)
	case 1:
		return "update countries", c.Country.Update().SetCode(d.code()).SetUnion(d.Maybe(2)).Exec(ctx)
	case 2:
		b := c.User.Create().SetName(fmt.Sprint("u", d.IntN(30))).SetLevel(d.IntN(5))
		if ids := must(c.Country.Query().IDs(ctx)); len(ids) > 0 {
			b.SetCountryID(d.any(ids))
		}
		return "create user", b.AddOwnedIDs(d.some(d.pieces())...).Exec(ctx)
	case 3:
		u := c.User.UpdateOneID(d.any(d.users()))
		if ids := must(c.Country.Query().IDs(ctx)); d.Maybe(2) {
			u.SetCountryID(d.any(ids))
		} else {
			u.ClearCountry()
		}
		return "move user", u.AddLevel(1).Exec(ctx)
	case 4:
		return "edges of user", c.User.UpdateOneID(d.any(d.users())).AddReviewedIDs(d.some(d.pieces())...).RemoveOwnedIDs(d.some(d.pieces())...).Exec(ctx)
	case 5:
		return "clear edges of users", c.User.Update().Where(user.LevelLT(d.IntN(6))).ClearReviewed().AddLevel(1).Exec(ctx)
	case 6:
		return "delete user", c.User.DeleteOneID(d.any(d.users())).Exec(ctx)
	case 7:
		return "create project", c.Project.Create().SetName(fmt.Sprint("p", d.IntN(6))).AddParcelIDs(d.some(d.parcels())...).Exec(ctx)
	case 8:
		return "update projects", c.Project.Update().Where(project.NameLT(fmt.Sprint("p", d.IntN(6)))).SetState(pick(d, project.StateOpen, project.StateClosed)).Exec(ctx)
	case 9:
		return "upsert project", c.Project.Create().SetName(fmt.Sprint("p", d.IntN(6))).SetState(pick(d, project.StateOpen, project.StateClosed)).
			OnConflictColumns(project.FieldName).UpdateNewValues().Exec(ctx)
	case 10:
		if d.Maybe(3) {
			return "delete projects", firstError(c.Project.Delete().Where(project.NameLT(fmt.Sprint("p", d.IntN(6)))).Exec(ctx))
		}
		return "remove parcels", c.Project.UpdateOneID(d.any(d.projects())).RemoveParcelIDs(d.some(d.parcels())...).SetState(pick(d, project.StateOpen, project.StateClosed)).Exec(ctx)
	case 11, 12:
		b := c.Parcel.Create().SetWeight(d.Int64N(9)).SetStatus(pick(d, parcel.StatusNew, parcel.StatusSent))
		if ids := d.projects(); len(ids) > 0 && d.Maybe(2) {
			b.SetProjectID(d.any(ids))
		}
		return "create parcel", b.AddPieceIDs(d.some(d.pieces())...).Exec(ctx)
	case 13, 14:
		return "update parcels", c.Parcel.Update().Where(parcel.WeightLT(d.Int64N(12))).SetStatus(pick(d, parcel.StatusNew, parcel.StatusSent, parcel.StatusDone)).AddWeight(1).Exec(ctx)
	case 15:
		return "move parcel", c.Parcel.UpdateOneID(d.any(d.parcels())).SetProjectID(d.any(d.projects())).SetStage(pick(d, parcel.StageRaw, parcel.StageCooked)).Exec(ctx)
	case 16:
		return "edges of parcel", c.Parcel.UpdateOneID(d.any(d.parcels())).AddPieceIDs(d.some(d.pieces())...).AddWeight(1).Exec(ctx)
	case 17:
		return "clear pieces", c.Parcel.Update().Where(parcel.WeightGT(d.Int64N(12))).ClearPieces().SetLabel(d.code()).Exec(ctx)
	case 18:
		return "delete parcel", c.Parcel.DeleteOneID(d.any(d.parcels())).Exec(ctx)
	case 19:
		return "modify parcels", c.Parcel.Update().Where(parcel.HasPiecesWith(piece.Published(true))).Modify(func(u *entsql.UpdateBuilder) {
			u.Set(parcel.FieldWeight, entsql.ExprFunc(func(b *entsql.Builder) { b.Ident(parcel.FieldWeight).WriteString(" + 3") }))
		}).Exec(ctx)
	case 20, 21, 22:
		return "create piece", d.newPiece(0).Exec(ctx)
	case 23:
		return "create pieces", c.Piece.CreateBulk(d.newPiece(0), d.newPiece(1), d.newPiece(2)).Exec(ctx)
	case 24, 25:
		u := c.Piece.Update().Where(piece.HasParcelWith(parcel.WeightLT(d.Int64N(15))))
		d.setPiece(u.Mutation())
		return "update pieces by their parcel", u.Exec(ctx)
	case 26, 27:
		u := c.Piece.UpdateOneID(d.any(d.pieces()))
		d.setPiece(u.Mutation())
		return "update piece", u.Exec(ctx)
	case 28:
		u := c.Piece.Update().Where(piece.StageEQ(pick(d, piece.StageRaw, piece.StageCooked)))
		d.setPiece(u.Mutation())
		return "update pieces", u.Exec(ctx)
	case 29:
		return "modify pieces", c.Piece.Update().Where(piece.SizeLT(int64(10 * d.IntN(9)))).Modify(func(u *entsql.UpdateBuilder) {
			u.Set(piece.FieldSize, entsql.ExprFunc(func(b *entsql.Builder) { b.Ident(piece.FieldSize).WriteString(" * 2 % 90") }))
		}).Exec(ctx)
	case 30:
		if d.Maybe(2) {
			return "delete pieces", firstError(c.Piece.Delete().Where(piece.SizeLT(int64(10 * d.IntN(4)))).Exec(ctx))
		}
		return "delete piece", c.Piece.DeleteOneID(d.any(d.pieces())).Exec(ctx)
	case 31, 32:
		up := c.Piece.CreateBulk(d.newPiece(0), d.newPiece(1)).OnConflictColumns(piece.FieldSerial)
		if d.Maybe(2) {
			return "upsert pieces", up.UpdateNewValues().Exec(ctx)
		}
		return "upsert pieces, changed", up.Update(func(u *ent.PieceUpsert) { u.SetPublished(true).UpdateMadeAt().UpdateOwnerPiece() }).Exec(ctx)
	case 33:
		return "create entry", c.Entry.Create().SetWords(d.IntN(9)).AddTermIDs(d.some(d.terms())...).AddFriendIDs(d.some(d.entries())...).AddTagIDs(d.some(d.tags())...).Exec(ctx)
	case 34:
		u := c.Entry.Update().Where(entry.WordsLT(d.IntN(12))).SetStatus(pick(d, entry.StatusDraft, entry.StatusPublished)).AddWords(1)
		if d.Maybe(3) {
			u.SetDeletedAt(noon)
		} else {
			u.ClearDeletedAt()
		}
		return "update entries", u.Exec(ctx)
	case 35:
		id := d.any(d.entries())
		u := c.Entry.UpdateOneID(id).RemoveTermIDs(d.some(d.terms())...).RemoveFriendIDs(d.some(d.entries())...).SetStatus(pick(d, entry.StatusDraft, entry.StatusPublished))
		if d.Maybe(3) {
			u.ClearTags()
		}
		return "edges of entry", u.Exec(ctx)
	case 36:
		switch d.IntN(5) {
		case 0:
			return "create term", c.Term.Create().SetName(d.code()).AddEntryIDs(d.some(d.entries())...).Exec(ctx)
		case 1:
			return "create tag", c.Tag.Create().SetName(d.code()).AddEntryIDs(d.some(d.entries())...).Exec(ctx)
		case 2:
			return "rename tags", c.Tag.Update().SetName(d.code()).Exec(ctx)
		case 3:
			return "delete term", c.Term.DeleteOneID(d.any(d.terms())).Exec(ctx)
		}
		return "delete entry", c.Entry.DeleteOneID(d.any(d.entries())).Exec(ctx)
	case 37:
		b := c.Node.Create().SetColor(pick(d, "red", "blue")).AddChildIDs(d.some(d.nodes())...)
		if ids := d.nodes(); len(ids) > 0 {
			b.SetParentID(d.any(ids))
		}
		return "create node", b.Exec(ctx)
	case 38:
		return "update nodes", c.Node.Update().Where(node.SizeLT(d.IntN(9))).SetColor(pick(d, "red", "blue", "green")).AddSize(1).Exec(ctx)
	default:
		u := c.Node.UpdateOneID(d.any(d.nodes()))
		switch d.IntN(4) {
		case 0:
			u.SetParentID(d.any(d.nodes())).SetColor(pick(d, "red", "blue"))
		case 1:
			u.ClearParent().AddChildIDs(d.some(d.nodes())...)
		case 2:
			return "delete node", c.Node.DeleteOneID(d.any(d.nodes())).Exec(ctx)
		default:
			u.ClearChildren()
		}
		return "edges of node", u.Exec(ctx)
	}
}

func firstError(_ int, err error) error { return err }

var errRollback = errors.New("rolled back by the test")

// transaction runs several steps in one transaction, some of which it rolls back.
func (d *Drawer) transaction() (string, error) {
	tx, err := d.c.Tx(d.ctx)
	if err != nil {
		return "begin", err
	}
	in := &Drawer{d.Rand, d.ctx, tx.Client()}
	what := "transaction:"
	for range 1 + d.IntN(4) {
		name, err := in.step()
		what += " " + name + ";"
		if err != nil {
			return what, errors.Join(err, tx.Rollback())
		}
	}
	if d.Maybe(4) {
		return what, errors.Join(errRollback, tx.Rollback())
	}
	return what, tx.Commit()
}

// Refused reports whether an error is one that the test brings about on purpose.
func Refused(err error) bool {
	return err == nil || ent.IsConstraintError(err) || ent.IsNotFound(err) || ent.IsValidationError(err) || errors.Is(err, errRollback)
}

// Run draws and runs a mutation, or a transaction of several.
func (d *Drawer) Run() (what string, err error) {
	defer func() {
		// A query of the test's own in a failed transaction.
		if e, ok := recover().(error); ok {
			err = e
		}
	}()
	if d.Maybe(4) {
		return d.transaction()
	}
	return d.step()
}
