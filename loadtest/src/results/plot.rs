//! Curves as inline SVG: logarithmic axes, one line per target, told apart by colour and dashes, with their names above.
//!
//! Each plot is there twice, for wide pages and for telephones: scaled as a whole, its letters would be too small to read.

/// One line of a plot.
pub(crate) struct Line {
    pub(crate) name: String,
    /// Which of the page's colours, from 0.
    pub(crate) colour: usize,
    /// Which of the page's dashes, from 0, which is none.
    pub(crate) dash: usize,
    /// In the units of the axes, in order.
    pub(crate) points: Vec<(f64, f64)>,
    /// Whether each point is good, where points are shown.
    pub(crate) dots: Vec<bool>,
}

/// An axis: its title, and where it has marks.
pub(crate) struct Axis {
    pub(crate) title: String,
    pub(crate) marks: Vec<(f64, String)>,
}

/// A height across the plot that means something: where, and what.
pub(crate) struct Limit {
    pub(crate) at: f64,
    pub(crate) name: String,
}

/// How large a plot is drawn, in the units of its letters' size.
struct Frame {
    class: &'static str,
    width: f64,
    height: f64,
}

const FRAMES: [Frame; 2] =
    [Frame { class: "plot", width: 900.0, height: 340.0 }, Frame { class: "plot small", width: 368.0, height: 300.0 }];
const LEFT: f64 = 68.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 44.0;
/// Marks of the lower axis stand at least this far from each other.
const MARK_WIDTH: f64 = 42.0;

/// The plot as names and `svg` elements; empty where no line has a point. Both axes are those of the points given.
pub(crate) fn plot(label: &str, x: &Axis, y: &Axis, lines: &[Line], limit: Option<&Limit>) -> String {
    if lines.iter().all(|line| line.points.is_empty()) {
        return String::new();
    }
    let name = |line: &Line| {
        let Line { name, colour, dash, .. } = line;
        format!(
            "<li><svg class=\"key\" viewBox=\"0 0 34 10\"><line class=\"c{colour} d{dash}\" x1=\"0\" y1=\"5\" x2=\"34\" y2=\"5\"/></svg>{}</li>",
            escaped(name)
        )
    };
    let names: String = lines.iter().filter(|line| !line.points.is_empty()).map(name).collect();
    let drawn: String = FRAMES.iter().map(|frame| framed(frame, label, (x, y), lines, limit)).collect();
    format!("<ul class=\"names\">{names}</ul>\n{drawn}")
}

fn framed(frame: &Frame, label: &str, (x, y): (&Axis, &Axis), lines: &[Line], limit: Option<&Limit>) -> String {
    let Frame { class, width, height } = frame;
    let all = || lines.iter().flat_map(|line| line.points.iter());
    let bounds = |pick: fn(&(f64, f64)) -> f64, axis: &Axis, more: Option<f64>| {
        let values = || all().map(pick).chain(axis.marks.iter().map(|(at, _)| *at)).chain(more);
        let (low, high) = (values().fold(f64::MAX, f64::min), values().fold(f64::MIN, f64::max));
        (low, if high > low { high } else { low + 1.0 })
    };
    let (x_low, x_high) = bounds(|point| point.0, x, None);
    let (y_low, y_high) = bounds(|point| point.1, y, limit.map(|limit| limit.at));
    let (right, low) = (width - RIGHT, height - BOTTOM);
    let at_x = |value: f64| LEFT + (value - x_low) / (x_high - x_low) * (right - LEFT);
    let at_y = |value: f64| low - (value - y_low) / (y_high - y_low) * (low - TOP);
    let mut out = format!(
        "<svg class=\"{class}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">\n",
        escaped(label)
    );
    for (value, name) in &y.marks {
        let y = at_y(*value);
        out.push_str(&format!("<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/>"));
        let (x, y) = (LEFT - 6.0, y + 4.0);
        out.push_str(&format!("<text x=\"{x}\" y=\"{y:.1}\" class=\"end\">{}</text>\n", escaped(name)));
    }
    let mut free_from = f64::MIN;
    for (value, name) in &x.marks {
        let x = at_x(*value);
        out.push_str(&format!("<line class=\"grid\" x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{low}\"/>"));
        if x >= free_from {
            let y = low + 16.0;
            out.push_str(&format!("<text x=\"{x:.1}\" y=\"{y}\" class=\"middle\">{}</text>\n", escaped(name)));
            free_from = x + MARK_WIDTH;
        }
    }
    let (middle, bottom) = (LEFT + (right - LEFT) / 2.0, height - 8.0);
    out.push_str(&format!("<text x=\"{middle}\" y=\"{bottom}\" class=\"middle\">{}</text>\n", escaped(&x.title)));
    out.push_str(&format!(
        "<text x=\"14\" y=\"{0}\" class=\"middle\" transform=\"rotate(-90 14 {0})\">{1}</text>\n",
        TOP + (low - TOP) / 2.0,
        escaped(&y.title)
    ));
    if let Some(Limit { at, name }) = limit {
        let y = at_y(*at);
        out.push_str(&format!("<line class=\"limit\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/>"));
        let (x, y) = (right - 4.0, y - 5.0);
        out.push_str(&format!("<text x=\"{x}\" y=\"{y:.1}\" class=\"end limit\">{}</text>\n", escaped(name)));
    }
    for Line { name, colour, dash, points, dots } in lines.iter().filter(|line| !line.points.is_empty()) {
        let path: Vec<String> = points.iter().map(|(x, y)| format!("{:.1},{:.1}", at_x(*x), at_y(*y))).collect();
        out.push_str(&format!(
            "<polyline class=\"c{colour} d{dash}\" points=\"{}\"><title>{}</title></polyline>\n",
            path.join(" "),
            escaped(name)
        ));
        for ((x, y), is_good) in points.iter().zip(dots) {
            let (x, y) = (at_x(*x), at_y(*y));
            out.push_str(&match is_good {
                true => format!("<circle class=\"c{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>"),
                false => format!(
                    "<path class=\"cross c{colour}\" d=\"M{:.1} {:.1}l10 10m0 -10l-10 10\"><title>not kept up with</title></path>",
                    x - 5.0,
                    y - 5.0
                ),
            });
        }
    }
    out.push_str("</svg>\n");
    out
}

/// Marks of a logarithmic axis between these bounds: 1, 2 and 5 of each power of ten, or even steps where the bounds are close.
pub(crate) fn time_marks(low: f64, high: f64, shown: impl Fn(f64) -> String) -> Vec<(f64, String)> {
    let decades = (high / low).log10();
    let values: Vec<f64> = if decades < CLOSE_DECADES {
        let step = round_step((high - low).max(low * 0.01) / 4.0);
        let first = (low / step).floor() as u64;
        (first..first + 8).map(|number| number as f64 * step).filter(|value| *value <= high + step).collect()
    } else {
        let steps: &[f64] = if decades > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let powers = low.log10().floor() as i32..=high.log10().ceil() as i32 + 1;
        let all: Vec<f64> = powers.flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power))).collect();
        // From the last mark below all points to the first one above them, so that both ends have one.
        let first = all.iter().rposition(|value| *value <= low * 1.001).unwrap_or(0);
        let last = all.iter().position(|value| *value >= high * 0.999).unwrap_or(all.len().saturating_sub(1));
        all.get(first..=last).unwrap_or_default().to_vec()
    };
    let mut marks: Vec<(f64, String)> =
        values.into_iter().filter(|value| *value > 0.0).map(|value| (value.log10(), shown(value))).collect();
    // Steps finer than the names tell would have one name twice.
    marks.dedup_by(|next, kept| next.1 == kept.1);
    marks
}

/// Bounds that are closer than this many powers of ten have even marks.
const CLOSE_DECADES: f64 = 0.5;

/// 1, 2 or 5 of a power of ten, at least this.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|step| step * power).into_iter().find(|step| *step >= least).unwrap_or(power)
}

/// A text for HTML.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, colour: usize, dash: usize) -> Line {
        let points = vec![(0.0, 1.0), (1.0, 2.0)];
        Line { name: name.to_owned(), colour, dash, points, dots: vec![true, false] }
    }

    fn axis() -> Axis {
        Axis { title: "t".to_owned(), marks: vec![(0.0, "0".to_owned())] }
    }

    #[test]
    fn a_plot_is_there_for_wide_pages_and_for_telephones_with_whole_names() {
        let long = "a-gateway-whose-name-is-longer-than-any-margin-would-hold";
        let limit = Limit { at: 1.5, name: "limit 100 ms".to_owned() };
        let svg = plot("a", &axis(), &axis(), &[line(long, 1, 0), line("b", 1, 1)], Some(&limit));
        assert_eq!(svg.matches("role=\"img\"").count(), 2);
        assert_eq!(svg.matches(&format!("</svg>{long}</li>")).count(), 1, "the name stands above, whole: {svg}");
        assert_eq!(svg.matches("<polyline class=\"c1 d0\"").count(), 2);
        assert_eq!(svg.matches("<polyline class=\"c1 d1\"").count(), 2, "the same colour has other dashes");
        assert_eq!((svg.matches("<circle").count(), svg.matches("class=\"cross").count()), (4, 4));
        assert_eq!(svg.matches("limit 100 ms").count(), 2);
    }

    #[test]
    fn marks_are_round_whether_the_bounds_are_far_or_close() {
        let marks = |low: f64, high: f64| {
            time_marks(low, high, |value| format!("{value}")).into_iter().map(|mark| mark.1).collect::<Vec<_>>()
        };
        assert_eq!(marks(100.0, 900.0), ["100", "200", "500", "1000"]);
        assert_eq!(marks(500.0, 545.0), ["500", "520", "540", "560"]);
        assert_eq!(marks(10.0, 1e6), ["10", "100", "1000", "10000", "100000", "1000000"]);
        assert!(!marks(7.0, 7.0).is_empty());
        assert_eq!(marks(3.0, 7_000.0), ["1", "10", "100", "1000", "10000"], "both ends have a mark");
        assert_eq!(marks(120.0, 730.0), ["100", "200", "500", "1000"]);
        let rates = time_marks(50.0, 50.0, |rate| format!("{rate:.0}"));
        let names: std::collections::BTreeSet<&String> = rates.iter().map(|(_, name)| name).collect();
        assert_eq!(names.len(), rates.len(), "no name twice: {rates:?}");
    }

    #[test]
    fn a_strangers_name_is_text() {
        let svg = plot("a", &axis(), &axis(), &[line("<script>", 0, 0)], None);
        assert!(svg.contains("&lt;script&gt;") && !svg.contains("<script>"));
        assert_eq!(plot("a", &axis(), &axis(), &[], None), "");
    }
}
