"""The pages of docs/reference that the code fills: tables, commands and protos as Markdown."""
