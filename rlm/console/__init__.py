"""The console: a web page that each broker's service serves, and the data that it shows."""
