async function main() {
  for (const [name, area] of [["local", chrome.storage.local], ["sync", chrome.storage.sync]]) {
    await area.set({text: "value", "größe": {a: [1, 2.5, null, true], "日本": "🎉"}, number: 1, changed: "first", gone: "deleted", empty: {}});
    await area.set({changed: {second: [name]}});
    await area.remove("gone");
  }
  const truth = {id: chrome.runtime.id, local: await chrome.storage.local.get(null), sync: await chrome.storage.sync.get(null)};
  await fetch("http://127.0.0.1:PORT/truth/extension", {method: "POST", body: JSON.stringify(truth)});
}
main();
