// The data of the service that served this page. The token is in the memory of this module alone.

let token = "";

export class Refused extends Error {
  constructor(text, status, asksToken) {
    super(text);
    this.status = status;
    this.asksToken = asksToken;
  }
}

export function showToken(text) {
  token = text.trim();
}

export async function get(name, params, signal) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params ?? {})) {
    if (value !== "" && value !== null && value !== undefined) query.set(key, String(value));
  }
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(`data/${name}?${query}`, {
    headers,
    signal,
    cache: "no-store",
    credentials: "omit",
    redirect: "error",
  });
  const body = await answer.json().catch(() => ({ error: `the service answered ${answer.status}` }));
  if (!answer.ok) throw new Refused(body.error, answer.status, body.asks_token === true);
  return body;
}

// Runs one action; `line` gets what it reports. It is stopped by ending the request.
export async function act(name, fields, signal, line) {
  const headers = { "Content-Type": "application/json", ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  const answer = await fetch(`actions/${name}`, {
    method: "POST",
    body: JSON.stringify(fields),
    headers,
    signal,
    cache: "no-store",
    credentials: "omit",
    redirect: "error",
  });
  if (!answer.ok) {
    const body = await answer.json().catch(() => ({ error: `the service answered ${answer.status}` }));
    throw new Refused(body.error, answer.status, body.asks_token === true);
  }
  let isEnded = false;
  for await (const row of rowsOf(answer.body)) {
    if (row.error !== undefined && Object.keys(row).length === 1) throw new Refused(row.error, 200, false);
    if (row.end) isEnded = true;
    else line(row);
  }
  if (!isEnded) throw new Refused("the service broke off: whether it is done is not known", 200, false);
}

async function* rowsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const found = (rest + value).split("\n");
    rest = found.pop();
    for (const text of found) yield JSON.parse(text);
  }
}
