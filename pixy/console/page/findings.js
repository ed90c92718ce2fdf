// Findings: causes of trouble with evidence; below them the clusters and their brokers.
import { cards } from "./cards.js";

export default function findings(context) {
  const { root, h, format, table, watch, dom } = context;
  const box = h("div", { class: "cards" }, h("p", { class: "panel empty" }, "Loading …")), count = h("span", { class: "count" });
  const brokers = table([
    { key: "cluster", title: "Cluster" },
    { key: "name", title: "Broker", class: "path" },
    { title: "State", text: (row) => (row.up ? "connected" : "not connected"), hint: "As the daemon's producer sees it: it connects to those that it needs" },
    { title: "Answers in", class: "num", text: (row) => format.latency(row.rtt), tone: (row) => (row.rtt > 0.5 ? "bad" : row.rtt > 0.1 ? "watch" : ""), hint: "99 of 100 answers to the producer took no longer" },
    { title: "Queued", class: "num", text: (row) => format.count(row.queued) },
  ], { label: "Brokers", empty: "No broker is known yet." });
  const clusters = table([
    { key: "cluster", title: "Cluster" },
    { title: "State", text: (row) => row.down || "reachable", tone: (row) => (row.down ? "bad" : ""), class: "wrap" },
    { title: "Groups", class: "num", text: (row) => `${format.count(row.groups)} of ${format.count(row.max_groups)}` },
    { title: "Producers", class: "num", text: (row) => format.count(row.producers), hint: "Topics that have a producer now" },
    { title: "Journal", class: "num", text: (row) => (row.journal ? `${format.count(row.journal[0])} held, ${format.count(row.journal[3])} lost` : "–") },
  ], { label: "Clusters" });
  root.append(h("section", {}, h("h2", {}, "What is wrong", count), box), h("section", {}, h("h2", {}, "Clusters"), clusters.element),
    h("section", {}, h("h2", {}, "Brokers"), brokers.element));
  const show = cards(context);
  watch("kafka.findings", {}, (data) => {
    show(box, data.findings, "Nothing is wrong.");
    dom.setText(count, data.total ? format.count(data.total) : "");
    clusters.update(data.clusters);
    brokers.update(data.clusters.flatMap((each) => each.brokers.map((broker) => ({ ...broker, cluster: each.cluster }))));
  });
}
