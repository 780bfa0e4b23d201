//! Curves as inline SVG: logarithmic axes, one line per target, its name at the line's end.

/// One line of a plot.
pub(crate) struct Line {
    pub(crate) name: String,
    /// Which of the page's colours, from 0.
    pub(crate) colour: usize,
    /// In the units of the axes, in order.
    pub(crate) points: Vec<(f64, f64)>,
}

/// An axis: its title, and where it has marks.
pub(crate) struct Axis {
    pub(crate) title: &'static str,
    pub(crate) marks: Vec<(f64, String)>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 68.0;
const RIGHT: f64 = 130.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 44.0;
/// A line of more points than this shows no dots.
const DOTS_MAX: usize = 20;
/// Names of lines stand at least this far from each other.
const NAME_HEIGHT: f64 = 16.0;

/// The plot as an `svg` element; empty where no line has a point. Both axes are those of the points given.
pub(crate) fn plot(label: &str, x: &Axis, y: &Axis, lines: &[Line]) -> String {
    let all = || lines.iter().flat_map(|line| line.points.iter());
    let bounds = |pick: fn(&(f64, f64)) -> f64, axis: &Axis| {
        let values = || all().map(pick).chain(axis.marks.iter().map(|(at, _)| *at));
        let (low, high) = (values().fold(f64::MAX, f64::min), values().fold(f64::MIN, f64::max));
        (low, if high > low { high } else { low + 1.0 })
    };
    if all().next().is_none() {
        return String::new();
    }
    let ((x_low, x_high), (y_low, y_high)) = (bounds(|point| point.0, x), bounds(|point| point.1, y));
    let at_x = |value: f64| LEFT + (value - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT);
    let at_y = |value: f64| HEIGHT - BOTTOM - (value - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM);
    let mut out = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n", escaped(label));
    for (value, name) in &y.marks {
        let (y, right) = (at_y(*value), WIDTH - RIGHT);
        out.push_str(&format!("<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/>"));
        out.push_str(&format!(
            "<text x=\"{}\" y=\"{:.1}\" class=\"end\">{}</text>\n",
            LEFT - 6.0,
            y + 4.0,
            escaped(name)
        ));
    }
    for (value, name) in &x.marks {
        let (x, low) = (at_x(*value), HEIGHT - BOTTOM);
        out.push_str(&format!("<line class=\"grid\" x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{low}\"/>"));
        out.push_str(&format!("<text x=\"{x:.1}\" y=\"{}\" class=\"middle\">{}</text>\n", low + 16.0, escaped(name)));
    }
    let middle = LEFT + (WIDTH - LEFT - RIGHT) / 2.0;
    out.push_str(&format!("<text x=\"{middle}\" y=\"{}\" class=\"middle\">{}</text>\n", HEIGHT - 8.0, x.title));
    out.push_str(&format!(
        "<text x=\"14\" y=\"{}\" class=\"middle\" transform=\"rotate(-90 14 {0})\">{}</text>\n",
        HEIGHT / 2.0,
        y.title
    ));
    let ends = name_places(lines, at_y);
    for (line, end) in lines.iter().zip(ends).filter(|(line, _)| !line.points.is_empty()) {
        let points: Vec<String> = line.points.iter().map(|(x, y)| format!("{:.1},{:.1}", at_x(*x), at_y(*y))).collect();
        let name = escaped(&line.name);
        out.push_str(&format!(
            "<polyline class=\"c{}\" points=\"{}\"><title>{name}</title></polyline>",
            line.colour,
            points.join(" ")
        ));
        if line.points.len() <= DOTS_MAX {
            for (x, y) in &line.points {
                out.push_str(&format!(
                    "<circle class=\"c{}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\"/>",
                    line.colour,
                    at_x(*x),
                    at_y(*y)
                ));
            }
        }
        let last = line.points.last().map_or(0.0, |(x, _)| at_x(*x));
        out.push_str(&format!(
            "<text class=\"name c{}\" x=\"{:.1}\" y=\"{:.1}\">{name}</text>\n",
            line.colour,
            last + 6.0,
            end + 4.0
        ));
    }
    out.push_str("</svg>\n");
    out
}

/// Where the lines' names stand: at their ends, and apart from each other.
fn name_places(lines: &[Line], at_y: impl Fn(f64) -> f64) -> Vec<f64> {
    let mut ends: Vec<(usize, f64)> =
        lines.iter().enumerate().map(|(at, line)| (at, line.points.last().map_or(0.0, |(_, y)| at_y(*y)))).collect();
    ends.sort_by(|one, other| one.1.total_cmp(&other.1));
    let mut lowest = f64::MIN;
    let mut places = vec![0.0; lines.len()];
    for (at, end) in ends {
        lowest = end.max(lowest + NAME_HEIGHT);
        if let Some(place) = places.get_mut(at) {
            *place = lowest;
        }
    }
    places
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
        let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let all = powers.flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
        all.filter(|value| *value >= low * 0.6 && *value <= high * 1.6).collect()
    };
    values.into_iter().filter(|value| *value > 0.0).map(|value| (value.log10(), shown(value))).collect()
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

    #[test]
    fn names_at_the_ends_of_lines_do_not_cover_each_other() {
        let line = |y: f64| Line { name: "a".to_owned(), colour: 0, points: vec![(0.0, 0.0), (1.0, y)] };
        let mut places = name_places(&[line(5.0), line(5.1), line(5.05)], |y| 100.0 - y);
        places.sort_by(f64::total_cmp);
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= NAME_HEIGHT));
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
    }

    #[test]
    fn a_strangers_name_is_text() {
        let line = Line { name: "<script>".to_owned(), colour: 0, points: vec![(0.0, 1.0), (1.0, 2.0)] };
        let axis = || Axis { title: "t", marks: vec![(0.0, "0".to_owned())] };
        let svg = plot("a", &axis(), &axis(), &[line]);
        assert!(svg.contains("&lt;script&gt;") && !svg.contains("<script>"));
        assert_eq!(plot("a", &axis(), &axis(), &[]), "");
    }
}
