//! The report as one page.

use super::data::{text_of, Results};
use super::svg::escaped;
use super::{charts, findings, markdown};

const STYLE: &str = include_str!("style.css");

pub fn page(results: &Results) -> String {
    let preset = escaped(&text_of(&results.config["plan"]["preset"]));
    let time = escaped(&text_of(&results.config["environment"]["time"]));
    let list = |items: Vec<String>| -> String {
        items.iter().map(|item| format!("<li>{}</li>", escaped(item))).collect()
    };
    let cells = |tag: &str, row: &[String]| -> String {
        let cell = |text: &String| format!("<{tag}>{}</{tag}>", escaped(text));
        format!("<tr>{}</tr>", row.iter().map(cell).collect::<String>())
    };
    let head = cells("th", &markdown::HEAD.map(String::from));
    let body: String = markdown::rows(results).iter().map(|row| cells("td", row)).collect();
    let setting = |(name, value): (String, String)| {
        format!("<dt>{}</dt><dd>{}</dd>", escaped(&name), escaped(&value))
    };
    let settings: String = markdown::settings(results).into_iter().map(setting).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>sluice bench: {preset}</title><style>{STYLE}</style></head><body><main>\n\
         <h1>sluice bench: {preset}</h1><p class=\"note\">{time}</p>\n\
         <h2>Found</h2><ul>{}</ul>\n\
         <h2>Charts</h2><div class=\"charts\">{}</div>\n\
         <h2>Measured</h2><p class=\"note\">Medians, with least and most where there are several \
         repetitions. Device figures are of the whole disk while the measurement ran; \
         \u{201c}beyond\u{201d} is what the device got and no counter of the server explains.</p>\
         <div class=\"wide\"><table><thead>{head}</thead><tbody>{body}</tbody></table></div>\n\
         <h2>Configuration</h2><dl>{settings}</dl>\n</main></body></html>\n",
        list(findings::sentences(results)),
        charts::all(results).join("\n"),
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
        for tag in ["figure", "svg", "table", "ul", "dl", "main", "text"] {
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
