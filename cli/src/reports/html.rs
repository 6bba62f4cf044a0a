//! The report as one page.

use super::data::{text_of, Results};
use super::svg::escaped;
use super::{about, charts, findings, markdown, seconds, trials};

const STYLE: &str = include_str!("style.css");

pub fn page(results: &Results) -> String {
    let title = escaped(&about::title(results));
    let time = escaped(&text_of(&results.config["environment"]["time"]));
    let paragraphs: String =
        about::paragraphs(results).iter().map(|p| format!("<p>{}</p>\n", escaped(p))).collect();
    let setting = |(name, value): (String, String)| {
        format!("<dt>{}</dt><dd>{}</dd>", escaped(&name), escaped(&value))
    };
    let settings: String = markdown::settings(results).into_iter().map(setting).collect();
    let sections: String = charts::sections(results)
        .into_iter()
        .map(|(name, charts)| {
            let name = escaped(&name);
            format!("<h3>{name}</h3><div class=\"charts\">{}</div>\n", charts.join("\n"))
        })
        .collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>sluice bench: {title}</title><style>{STYLE}</style></head><body><main>\n\
         <h1>{title}</h1><p class=\"note\">{time}</p>\n{paragraphs}\
         <h2>Found</h2>{}\n{}{}{}\
         {}<h2>Charts</h2>\n{sections}\
         {}\
         <h2>Configuration</h2><dl>{settings}</dl>\n</main></body></html>\n",
        list(&findings::sentences(results)),
        advice(results),
        trial_tables(results),
        relative(results),
        seconds_table(results),
        measured(results),
    )
}

fn list(items: &[String]) -> String {
    let items: String = items.iter().map(|item| format!("<li>{}</li>", escaped(item))).collect();
    format!("<ul>{items}</ul>")
}

fn table<R: AsRef<[String]>>(head: &[String], rows: &[R]) -> String {
    let row = |tag: &str, row: &[String]| -> String {
        let cell = |text: &String| format!("<{tag}>{}</{tag}>", escaped(text));
        format!("<tr>{}</tr>", row.iter().map(cell).collect::<String>())
    };
    let body: String = rows.iter().map(|cells| row("td", cells.as_ref())).collect();
    format!(
        "<div class=\"wide\"><table><thead>{}</thead><tbody>{body}</tbody></table></div>",
        row("th", head)
    )
}

fn trial_tables(results: &Results) -> String {
    let part = |found: trials::Table| {
        let (title, note) = (escaped(found.title), escaped(found.note));
        format!("<h2>{title}</h2><p class=\"note\">{note}</p>{}", table(&found.head, &found.rows))
    };
    trials::tables(results).into_iter().map(part).collect()
}

fn measured(results: &Results) -> String {
    let (head, rows) = markdown::measured(results);
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "<h2>Measured</h2><p class=\"note\">Medians, with least and most where there are several \
         repetitions. Bytes of the server are those of its process (write_bytes of /proc/PID/io); \
         bytes and flushes of the device are of the whole disk while the measurement ran, the file \
         system's and other programs' among them.</p>{}\n",
        table(&head, &rows)
    )
}

fn seconds_table(results: &Results) -> String {
    let (head, rows) = seconds::table(results);
    if rows.is_empty() {
        return String::new();
    }
    let note = escaped(seconds::NOTE);
    format!("<h2>Second by second</h2><p class=\"note\">{note}</p>{}\n", table(&head, &rows))
}

fn advice(results: &Results) -> String {
    let (settings, other) = markdown::advice(results);
    let mut text = String::new();
    if !settings.is_empty() {
        text += "<h2>Settings that sluice advise gave</h2>";
        text += &table(&markdown::ADVICE_HEAD.map(String::from), &settings);
    }
    if !other.is_empty() {
        text += "<p>Advice without a setting, not applied:</p>";
        text += &list(&other);
    }
    text
}

fn relative(results: &Results) -> String {
    let (head, rows) = markdown::relative(results);
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "<h2>TPS, relative</h2><p class=\"note\">\u{201c}even\u{201d}: the spreads of the repetitions \
         overlap, or the difference is less than 5 %. With one repetition the spread is not \
         known.</p>{}",
        table(&head, &rows)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_needs_nothing_but_itself() {
        let results = Results::parse(super::super::data::tests::RECORDED).unwrap();
        let html = page(&results);
        for forbidden in ["<script", "http://", "https://", "src=", "url(", "@import"] {
            assert!(!html.contains(forbidden), "{forbidden}");
        }
        assert!(html.matches("<svg").count() >= 5);
        for tag in ["figure", "svg", "table", "ul", "dl", "main", "text", "p", "h3", "div"] {
            let opened = html.matches(&format!("<{tag}>")).count()
                + html.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, html.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }

    #[test]
    fn what_a_server_says_cannot_become_markup() {
        let text = super::super::data::tests::RECORDED.replace("\"innodb\"", "\"<img>\"");
        let html = page(&Results::parse(&text).unwrap());
        assert!(!html.contains("<img>") && html.contains("&lt;img&gt;"));
    }
}
