//! Tables, which scroll within themselves where the page is narrow.

use std::fmt::Display;

use super::html::Html;

/// What is in a column.
#[derive(Clone, Copy, Debug)]
pub enum Column {
    /// Words.
    Text(&'static str),
    /// Numbers, which stand flush right.
    Number(&'static str),
}

/// A row in the making.
#[derive(Debug)]
pub struct Row<'a>(&'a mut Html);

/// A table whose rows `rows` writes with [`Row::write`].
pub fn table(html: &mut Html, caption: impl Display, columns: &[Column], rows: impl FnOnce(&mut Html)) {
    let caption = caption.to_string();
    let scroll: &[(&'static str, &dyn Display)] =
        &[("class", &"scroll"), ("role", &"region"), ("aria-label", &caption), ("tabindex", &"0")];
    html.element("div", scroll, |html| {
        html.element("table", &[], |html| {
            html.leaf("caption", &[], &caption);
            html.markup("<thead><tr>");
            for column in columns {
                match column {
                    Column::Text(name) => html.leaf("th", &[("scope", &"col")], name),
                    Column::Number(name) => html.leaf("th", &[("scope", &"col"), ("class", &"n")], name),
                }
            }
            html.markup("</tr></thead><tbody>");
            rows(html);
            html.markup("</tbody>");
        });
    });
}

impl Row<'_> {
    /// A row of cells.
    pub fn write(html: &mut Html, cells: impl FnOnce(&mut Row<'_>)) {
        Row::marked(html, "", cells);
    }

    /// A row that the style sheet shows in its own way.
    pub fn marked(html: &mut Html, class: &'static str, cells: impl FnOnce(&mut Row<'_>)) {
        if class.is_empty() {
            html.element("tr", &[], |html| cells(&mut Row(html)));
        } else {
            html.element("tr", &[("class", &class)], |html| cells(&mut Row(html)));
        }
    }

    /// Words of Airlock's own.
    pub fn text(&mut self, text: impl Display) {
        self.0.leaf("td", &[], text);
    }

    /// Words from elsewhere.
    pub fn foreign(&mut self, text: impl Display) {
        self.0.element("td", &[], |html| html.foreign(text));
    }

    /// A number.
    pub fn number(&mut self, text: impl Display) {
        self.0.leaf("td", &[("class", &"n")], text);
    }

    /// A name to be read letter by letter.
    pub fn code(&mut self, text: impl Display) {
        self.0.element("td", &[("class", &"name")], |html| html.leaf("code", &[], text));
    }

    /// Anything.
    pub fn cell(&mut self, inside: impl FnOnce(&mut Html)) {
        self.0.element("td", &[], inside);
    }
}

/// Says in the last row how many are not shown.
pub fn rest(html: &mut Html, columns: usize, what: impl Display) {
    html.element("tr", &[("class", &"rest")], |html| html.leaf("td", &[("colspan", &columns)], what));
}

/// Facts by name.
pub fn facts(html: &mut Html, inside: impl FnOnce(&mut Html)) {
    html.element("dl", &[("class", &"facts")], inside);
}

/// One of the [`facts`].
pub fn fact(html: &mut Html, name: &'static str, inside: impl FnOnce(&mut Html)) {
    html.markup("<div>");
    html.leaf("dt", &[], name);
    html.element("dd", &[], inside);
    html.markup("</div>");
}
