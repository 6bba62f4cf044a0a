//! Charts as SVG. Colours are CSS classes, so that a page can follow light and dark.

const WIDTH: f64 = 440.0;
const HEIGHT: f64 = 270.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 40.0;
/// As many as the style sheet has colours.
const COLOURS: usize = 8;

pub struct Series {
    pub name: String,
    pub points: Vec<Point>,
}

/// A value and, for repetitions, its spread.
#[derive(Clone, Copy)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    pub spread: Option<(f64, f64)>,
}

pub struct Axes<'a> {
    pub title: &'a str,
    pub x: &'a str,
    pub y: &'a str,
    /// Marks of the x axis; empty: round numbers.
    pub marks: &'a [f64],
}

pub fn escaped(text: &str) -> String {
    let escape = |c: char| match c {
        '&' => "&amp;".to_string(),
        '<' => "&lt;".to_string(),
        '>' => "&gt;".to_string(),
        '"' => "&quot;".to_string(),
        '\'' => "&#39;".to_string(),
        c => c.to_string(),
    };
    text.chars().map(escape).collect()
}

/// Short for an axis: 1.5 k, 20 M.
pub fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        v if v >= 1e9 => (value / 1e9, " G"),
        v if v >= 1e6 => (value / 1e6, " M"),
        v if v >= 1e4 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        v if v >= 100.0 || v == 0.0 || scaled.fract() == 0.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{scaled:.digits$}{unit}")
}

/// A round step, so that at most six of them reach `most`.
fn round_step(most: f64) -> f64 {
    let raw = (most / 5.0).max(f64::MIN_POSITIVE);
    let power = 10f64.powf(raw.log10().floor());
    let factor = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|f| f * power >= raw * 0.999);
    factor.unwrap_or(10.0) * power
}

struct Frame {
    most: f64,
    svg: String,
}

impl Frame {
    fn new(axes: &Axes, most: f64) -> Frame {
        let most = if most > 0.0 { most } else { 1.0 };
        let step = round_step(most);
        let most = (most / step).ceil() * step;
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
            escaped(axes.title)
        );
        let mut frame = Frame { most, svg: String::new() };
        let mut value = 0.0;
        while value <= most * 1.001 {
            let y = frame.y(value);
            svg += &format!(
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 4.0,
                short(value)
            );
            value += step;
        }
        svg += &format!(
            "<text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text class=\"axis\" transform=\"translate(12 {:.1}) rotate(-90)\" \
             text-anchor=\"middle\">{}</text>",
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - 6.0,
            escaped(axes.x),
            (TOP + HEIGHT - BOTTOM) / 2.0,
            escaped(axes.y)
        );
        frame.svg = svg;
        frame
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - value / self.most * (HEIGHT - BOTTOM - TOP)
    }

    fn mark(&mut self, x: f64, text: &str) {
        let y = HEIGHT - BOTTOM + 16.0;
        let text = escaped(text);
        self.svg +=
            &format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{text}</text>");
    }

    fn end(self) -> String {
        self.svg + "</svg>"
    }
}

/// Lines over numbers of threads (evenly spaced marks) or over time.
pub fn lines(axes: &Axes, series: &[Series]) -> String {
    let points = || series.iter().flat_map(|s| &s.points);
    let top = points().map(|p| p.spread.map_or(p.y, |s| s.1)).fold(0.0, f64::max);
    let last = points().map(|p| p.x).fold(0.0, f64::max).max(1.0);
    let mut frame = Frame::new(axes, top);
    let width = WIDTH - LEFT - RIGHT - 16.0;
    let place = |x: f64| match axes.marks.iter().position(|m| *m == x) {
        Some(at) => LEFT + 8.0 + width * at as f64 / (axes.marks.len() as f64 - 1.0).max(1.0),
        None => LEFT + 8.0 + width * x / last,
    };
    if axes.marks.is_empty() {
        let step = round_step(last);
        (0..=(last / step) as u32).for_each(|n| {
            let x = f64::from(n) * step;
            frame.mark(place(x), &short(x));
        });
    }
    // Eleven marks of four digits would touch each other.
    let every = axes.marks.len().div_ceil(8).max(1);
    for mark in axes.marks.iter().step_by(every) {
        frame.mark(place(*mark), &short(*mark));
    }
    for (at, one) in series.iter().enumerate() {
        let class = at % COLOURS;
        // Side by side, so that the spreads of several series do not hide each other.
        let aside = match axes.marks.is_empty() {
            true => 0.0,
            false => (at as f64 - (series.len() as f64 - 1.0) / 2.0) * 3.5,
        };
        let place = |x: f64| place(x) + aside;
        let path: Vec<String> =
            one.points.iter().map(|p| format!("{:.1},{:.1}", place(p.x), frame.y(p.y))).collect();
        frame.svg += &format!("<polyline class=\"s{class}\" points=\"{}\"/>", path.join(" "));
        for p in one.points.iter().filter(|_| !axes.marks.is_empty()) {
            let (x, y) = (place(p.x), frame.y(p.y));
            if let Some((least, most)) = p.spread.filter(|s| s.0 < s.1) {
                let (low, high) = (frame.y(least), frame.y(most));
                frame.svg += &format!(
                    "<path class=\"s{class}\" d=\"M{:.1} {low:.1}h4m-2 0V{high:.1}m-2 0h4\"/>",
                    x - 2.0
                );
            }
            frame.svg += &format!(
                "<circle class=\"f{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"><title>{}: {} at \
                 {}</title></circle>",
                escaped(&one.name),
                short(p.y),
                short(p.x)
            );
        }
    }
    figure(axes.title, frame.end(), series.iter().map(|s| s.name.as_str()))
}

/// One bar for each name, of parts on top of each other.
pub fn stacked(axes: &Axes, parts: &[&str], bars: &[(String, Vec<f64>)]) -> String {
    let top = bars.iter().map(|(_, values)| values.iter().sum::<f64>()).fold(0.0, f64::max);
    let mut frame = Frame::new(axes, top);
    let slot = (WIDTH - LEFT - RIGHT) / bars.len().max(1) as f64;
    for (at, (name, values)) in bars.iter().enumerate() {
        let x = LEFT + slot * (at as f64 + 0.5);
        let width = (slot * 0.7).min(64.0);
        let mut below = 0.0;
        for (part, value) in values.iter().enumerate().filter(|(_, value)| **value > 0.0) {
            let (low, high) = (frame.y(below), frame.y(below + value));
            frame.svg += &format!(
                "<rect class=\"f{}\" x=\"{:.1}\" y=\"{high:.1}\" width=\"{width:.1}\" \
                 height=\"{:.1}\"><title>{}, {}: {}</title></rect>",
                part % COLOURS,
                x - width / 2.0,
                low - high,
                escaped(name),
                escaped(parts[part]),
                short(*value)
            );
            below += value;
        }
        for (line, text) in label_lines(name, (slot / 6.5) as usize).iter().enumerate() {
            let y = HEIGHT - BOTTOM + 12.0 + 10.0 * line as f64;
            frame.svg += &format!(
                "<text class=\"small\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>",
                escaped(text)
            );
        }
    }
    let legend: Vec<&str> = if parts.len() > 1 { parts.to_vec() } else { Vec::new() };
    figure(axes.title, frame.end(), legend.into_iter())
}

/// A name that is longer than its place has one line for each of its first three words, which
/// are cut where they would reach into the next place.
fn label_lines(name: &str, letters: usize) -> Vec<String> {
    if name.chars().count() <= letters {
        return vec![name.to_string()];
    }
    let cut = |word: &str| word.chars().take(letters.max(4) + 2).collect();
    name.split_inclusive(['-', ' ']).take(3).map(cut).collect()
}

fn figure<'a>(title: &str, svg: String, names: impl Iterator<Item = &'a str>) -> String {
    let item = |(at, name): (usize, &str)| {
        format!("<li><i class=\"b{}\"></i>{}</li>", at % COLOURS, escaped(name))
    };
    let legend: String = names.enumerate().map(item).collect();
    let title = escaped(title);
    format!(
        "<figure><figcaption>{title}</figcaption>{svg}<ul class=\"legend\">{legend}</ul></figure>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_have_a_line_for_each_word() {
        assert_eq!(label_lines("innodb-nodw", 11), ["innodb-nodw"]);
        assert_eq!(label_lines("innodb-nodw-nobinlog", 7), ["innodb-", "nodw-", "nobinlog"]);
        assert_eq!(label_lines("sluice", 3), ["sluice"]);
        assert_eq!(label_lines("production_database a b c", 7), ["productio", "a ", "b "]);
    }

    #[test]
    fn numbers_are_short() {
        let cases =
            [(0.0, "0"), (950.0, "950"), (12_500.0, "12.5 k"), (2e6, "2 M"), (0.25, "0.25")];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
        assert_eq!(round_step(100.0), 20.0);
        assert_eq!(round_step(7.0), 2.0);
    }

    #[test]
    fn names_are_escaped() {
        let series = [Series {
            name: "<b>&\"".to_string(),
            points: vec![Point { x: 1.0, y: 2.0, spread: Some((1.0, 3.0)) }],
        }];
        let axes = Axes { title: "<t>", x: "threads", y: "TPS", marks: &[1.0] };
        let svg = lines(&axes, &series);
        assert!(!svg.contains("<b>") && !svg.contains("<t>"));
        assert!(svg.contains("&lt;b&gt;&amp;&quot;"));
        assert!(stacked(&axes, &["a", "b"], &[("x".into(), vec![1.0, 2.0])]).contains("<rect"));
    }
}
