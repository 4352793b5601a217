// Requests to the server of this page; no other server is contacted.
async function answer(response) {
  if (response.ok) return response;
  let content = { error: `The server answered ${response.status}.`, field: "" };
  try { content = await response.json(); } catch { /* not JSON: keep the status */ }
  const error = new Error(content.error);
  error.field = content.field;
  throw error;
}

const post = (path, body, signal) => fetch(path, { method: "POST", body, signal }).catch((error) => {
  if (error.name === "AbortError") throw error;
  throw new Error("The server does not respond. Is `lowtucker app` still running?");
}).then(answer);

export const about = async () => (await answer(await fetch("/api/about"))).json();
export const patterns = async () => (await answer(await fetch("/api/patterns"))).json();
export const describe = async (values, signal) => (await post("/api/describe", JSON.stringify(values), signal)).json();
export const upload = async (file) => (await post(`/api/uploads?name=${encodeURIComponent(file.name)}`, file)).json();
export const example = async () => (await post("/api/uploads?example=flame", "")).json();
export const forget = (key) => fetch(`/api/uploads/${key}`, { method: "DELETE", keepalive: true }).catch(() => {});

// Run settings and receive the events; aborting the signal stops the run on the server.
export async function run(values, signal, hear) {
  const response = await post("/api/run", JSON.stringify(values), signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const parts = text.split("\n\n");
    text = parts.pop();
    for (const one of parts) {
      if (one.startsWith("data: ")) hear(JSON.parse(one.slice(6)));
    }
  }
}
