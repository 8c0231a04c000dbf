package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"

	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// plot is one SVG file.
type plot struct {
	database string
	file     string // name
	title    string
	flags    string // of the command that makes it
	svg      []byte
}

// colors of variants, told apart also by who does not see all colours (Okabe and Ito).
var colors = map[string]color.Color{
	variantNone:   color.RGBA{0x99, 0x99, 0x99, 0xff},
	"entcounter":  color.RGBA{0x00, 0x72, 0xb2, 0xff},
	"hook":        color.RGBA{0xd5, 0x5e, 0x00, 0xff},
	"hook-sorted": color.RGBA{0xe6, 0x9f, 0x00, 0xff},
	"slots":       color.RGBA{0x00, 0x9e, 0x73, 0xff},
	"trigger":     color.RGBA{0xcc, 0x79, 0xa7, 0xff},
	"count":       color.RGBA{0x56, 0xb4, 0xe9, 0xff},
	"ivm":         color.RGBA{0xf0, 0xe4, 0x42, 0xff},
}

// plots draws, for each database, throughput by load for each number of clients, and latency by clients.
func (r *Results) plots() ([]plot, error) {
	var plots []plot
	for _, s := range r.Servers {
		for _, n := range r.Clients {
			one := plot{
				database: s.Name,
				file:     fmt.Sprintf("%s-%d.svg", s.Name, n),
				title:    fmt.Sprintf("%s, %s: throughput relative to no counter", s.Name, clients(n)),
				flags:    fmt.Sprintf(" -clients %d", n),
			}
			drawn, err := r.bars(&one, n)
			if err != nil {
				return nil, err
			}
			if drawn {
				plots = append(plots, one)
			}
		}
		for _, l := range r.compared() {
			if l.Name != "hot-tx" && l.Name != "spread-tx" {
				continue
			}
			one := plot{
				database: s.Name,
				file:     fmt.Sprintf("%s-%s-p99.svg", s.Name, l.Name),
				title:    fmt.Sprintf("%s, %s: 99th percentile of the latency", s.Name, l.Name),
				flags:    " -loads " + l.Name,
			}
			drawn, err := r.lines(&one, l)
			if err != nil {
				return nil, err
			}
			if drawn {
				plots = append(plots, one)
			}
		}
	}
	return plots, nil
}

// bars draws the ratios of all loads by one number of clients, with their ranges.
func (r *Results) bars(one *plot, n int) (drawn bool, err error) {
	var loads []string
	for _, l := range r.compared() {
		if r.over(group{one.database, l.Name, variantNone, n}, Cell.throughput).n > 0 {
			loads = append(loads, l.Name)
		}
	}
	variants := r.variantsBut()
	if len(loads) == 0 || len(variants) < 2 {
		return false, nil
	}
	p := gonum.New()
	p.Title.Text = one.title
	p.Y.Min = 0
	p.Legend.Top = true
	width := vg.Points(60) / vg.Length(len(variants))
	place := 0
	for _, v := range variants {
		if v.Name == variantNone {
			continue
		}
		var values plotter.Values
		ranges := whiskers{}
		offset := width * (vg.Length(place) - vg.Length(len(variants)-2)/2)
		for i, l := range loads {
			s := r.ratios(group{one.database, l, v.Name, n}, variantNone, Cell.throughput)
			values = append(values, s.median)
			if s.n > 1 {
				ranges.list = append(ranges.list, whisker{float64(i), s.low, s.high})
			}
		}
		chart, err := plotter.NewBarChart(values, width)
		if err != nil {
			return false, err
		}
		chart.Color, chart.Offset = colors[v.Name], offset
		chart.LineStyle.Width = 0
		ranges.offset = offset
		p.Add(chart, ranges)
		p.Legend.Add(v.Name, chart)
		place++
	}
	whole := plotter.NewFunction(func(float64) float64 { return 1 })
	whole.Color = color.Gray{0x99}
	p.Add(whole)
	p.NominalX(loads...)
	p.X.Min, p.X.Max = -0.6, float64(len(loads))-0.4
	p.Y.Max *= 1.3 // room for the legend
	p.X.Tick.Label.Rotation = math.Pi / 6
	p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = text.XRight, text.YCenter
	one.svg, err = svg(p, vg.Points(float64(max(480, 100+70*len(loads)))), vg.Points(340))
	return true, err
}

// whisker is the range of one bar.
type whisker struct{ x, low, high float64 }

// whiskers draws ranges, moved aside as the bars are.
type whiskers struct {
	list   []whisker
	offset vg.Length
}

// Plot implements [gonum.Plotter].
func (w whiskers) Plot(c draw.Canvas, p *gonum.Plot) {
	x, y := p.Transforms(&c)
	for _, one := range w.list {
		at := x(one.x) + w.offset
		c.StrokeLine2(draw.LineStyle{Color: color.Black, Width: vg.Points(0.5)}, at, y(one.low), at, y(one.high))
	}
}

// DataRange implements [gonum.DataRanger].
func (w whiskers) DataRange() (xmin, xmax, ymin, ymax float64) {
	xmin, xmax, ymin, ymax = math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, one := range w.list {
		xmin, xmax = min(xmin, one.x), max(xmax, one.x)
		ymin, ymax = min(ymin, one.low), max(ymax, one.high)
	}
	return xmin, xmax, ymin, ymax
}

// lines draws the latency of one load by numbers of clients.
func (r *Results) lines(one *plot, l Described) (drawn bool, err error) {
	numbers := r.clientsOf(one.database, l.Name)
	if len(numbers) < 2 {
		return false, nil
	}
	var ticks []gonum.Tick
	for _, n := range numbers {
		ticks = append(ticks, gonum.Tick{Value: float64(n), Label: fmt.Sprint(n)})
	}
	p := logarithmic(one.title, "clients", "milliseconds", ticks)
	for _, v := range r.variantsBut() {
		var points plotter.XYs
		for _, n := range numbers {
			if s := r.over(group{one.database, l.Name, v.Name, n}, p99); s.median > 0 {
				points = append(points, plotter.XY{X: float64(n), Y: s.median / 1000})
			}
		}
		if err := addLine(p, v.Name, colors[v.Name], points); err != nil {
			return false, err
		}
	}
	one.svg, err = svg(p, vg.Points(480), vg.Points(340))
	return true, err
}

// logarithmic returns a plot with logarithmic axes.
func logarithmic(title, x, y string, ticks []gonum.Tick) *gonum.Plot {
	p := gonum.New()
	p.Title.Text = title
	p.X.Label.Text, p.Y.Label.Text = x, y
	p.X.Scale, p.Y.Scale = gonum.LogScale{}, gonum.LogScale{}
	p.X.Tick.Marker = gonum.ConstantTicks(ticks)
	p.Y.Tick.Marker = gonum.LogTicks{Prec: -1}
	p.Legend.Top, p.Legend.Left = true, true
	return p
}

// addLine draws a line with a dot for each of the points, if there are any.
func addLine(p *gonum.Plot, name string, c color.Color, points plotter.XYs) error {
	if len(points) == 0 {
		return nil
	}
	line, dots, err := plotter.NewLinePoints(points)
	if err != nil {
		return err
	}
	line.Color, dots.Color = c, c
	line.Width = vg.Points(1.5)
	dots.Shape = draw.CircleGlyph{}
	p.Add(line, dots)
	p.Legend.Add(name, line, dots)
	return nil
}

// svg draws a plot on white: pages may be dark.
func svg(p *gonum.Plot, width, height vg.Length) ([]byte, error) {
	p.BackgroundColor = color.White
	p.Title.Padding = vg.Points(8)
	c := vgsvg.New(width, height)
	p.Draw(draw.New(c))
	var b bytes.Buffer
	_, err := c.WriteTo(&b)
	return b.Bytes(), err
}
