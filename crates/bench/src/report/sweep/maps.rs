//! Heat maps: a figure over the two axes with the most values, the mean over the others.

use super::{Figure, Sweep, number, text};
use crate::report::html::Html;

/// Values of an axis in a map, at most.
const VALUES: usize = 40;

/// Backgrounds from the worst to the best value.
pub(super) const STYLE: &str = "
.map thead th:not(:first-child) { text-align: center; padding: .15em .6em }
.map td { text-align: center; color: #000; padding: .3em .6em }
.map td.h0 { background: #fde725 } .map td.h1 { background: #b5de2b } .map td.h2 { background: #6ece58 }
.map td.h3 { background: #35b779 } .map td.h4 { background: #1f9e89; color: #fff } .map td.h5 { background: #26828e; color: #fff }
.map td.h6 { background: #31688e; color: #fff } .map td.h7 { background: #3e4989; color: #fff } .map td.h8 { background: #482878; color: #fff }
";

/// Cells with the colours of [`STYLE`].
const CELLS: [&str; 9] = [
    "<td class=\"h0\">",
    "<td class=\"h1\">",
    "<td class=\"h2\">",
    "<td class=\"h3\">",
    "<td class=\"h4\">",
    "<td class=\"h5\">",
    "<td class=\"h6\">",
    "<td class=\"h7\">",
    "<td class=\"h8\">",
];

pub(super) fn heat_map(body: &mut Html, sweep: &Sweep, figure: Figure) {
    let mut axes: Vec<_> = sweep.axes.iter().filter(|axis| axis.values.len() <= VALUES).collect();
    axes.sort_by_key(|axis| std::cmp::Reverse(axis.values.len()));
    let [down, across, ..] = axes[..] else { return };
    let mean = |down_value: &str, across_value: &str| {
        let rows = sweep.rows.iter();
        let found = rows
            .filter(|row| text(row, &down.name) == *down_value && text(row, &across.name) == *across_value);
        let values: Vec<f64> = found.filter_map(|row| number(row, figure.path)).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let means: Vec<Vec<Option<f64>>> = down
        .values
        .iter()
        .map(|value| across.values.iter().map(|other| mean(value, other)).collect())
        .collect();
    let all = || means.iter().flatten().flatten().copied();
    let (least, most) = (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
    let others = sweep.axes.iter().filter(|axis| axis.name != down.name && axis.name != across.name);
    let others: Vec<&str> = others.map(|axis| axis.name.as_str()).collect();
    let over = if others.is_empty() { String::new() } else { format!(", mean over {}", others.join(", ")) };
    body.element("h2", &format!("{}, by {} and {}{over}", figure.title, down.name, across.name));
    body.markup("<p class=\"pale\">Darker is better.</p>\n");
    body.markup("<div class=\"scroll\"><table class=\"map\"><thead><tr>").element("th", &down.name);
    for value in &across.values {
        body.element("th", value);
    }
    body.markup("</tr></thead><tbody>\n");
    for (value, means) in down.values.iter().zip(&means) {
        body.markup("<tr>").element("th", value);
        for mean in means {
            let Some(mean) = mean else {
                body.element("td", "");
                continue;
            };
            let share = if most > least { (mean - least) / (most - least) } else { 1.0 };
            let share = if figure.is_better_high { share } else { 1.0 - share };
            let colour = (share * (CELLS.len() - 1) as f64).round() as usize;
            body.markup(CELLS[colour.min(CELLS.len() - 1)]).text(&format!("{mean:.3}")).markup("</td>");
        }
        body.markup("</tr>\n");
    }
    body.markup("</tbody></table></div>\n");
}
