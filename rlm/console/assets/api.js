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
