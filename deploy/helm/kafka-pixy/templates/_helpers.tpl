{{- define "kafka-pixy.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 63 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "kafka-pixy.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kafka-pixy.labels" -}}
{{ include "kafka-pixy.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- /* The cluster that a request without a name means. The rendered file has clusters in the order of their names, so the first is no choice. */}}
{{- define "kafka-pixy.cluster" -}}
{{- $names := keys (get .Values.config "proxies" | default dict) | sortAlpha }}
{{- $chosen := get .Values.config "default_cluster" }}
{{- if $chosen }}{{ $chosen }}
{{- else if gt (len $names) 1 }}{{ fail (printf "set config.default_cluster to one of %s: with several proxies somebody must say which one kafkaPeers and requests without a cluster mean" (join ", " $names)) }}
{{- else }}{{ first (append $names "default") }}
{{- end }}
{{- end }}

{{- define "kafka-pixy.config" -}}
{{- if not (or .Values.insecure (dig "insecure" false .Values.config) (dig "auth" "enabled" false .Values.config)) }}
{{- fail "set config.auth.enabled (docs/security.md), or insecure=true to let every pod that reaches the service use it" }}
{{- end }}
{{- $name := include "kafka-pixy.name" . }}
{{- $hosts := list $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) (printf "%s.%s.svc.cluster.local" $name .Release.Namespace) }}
{{- $base := dict "grpc_addr" "0.0.0.0:19091" "tcp_addr" "0.0.0.0:19092" }}
{{- if .Values.insecure }}{{ $_ := set $base "insecure" true }}{{ end }}
{{- $_ := set $base "proxies" (dict (include "kafka-pixy.cluster" .) (dict "kafka" (dict "seed_peers" .Values.kafkaPeers))) }}
{{- $config := mergeOverwrite $base (deepCopy .Values.config) }}
{{- $_ := set $config "allowed_hosts" (concat $hosts (get .Values.config "allowed_hosts" | default list) | uniq) }}
{{- toYaml $config }}
{{- end }}

{{- /* How to ask the daemon: path and period of a probe. A kubelet has no certificate for a daemon that requires one: it can only connect. */}}
{{- define "kafka-pixy.probe" -}}
{{- $tls := get .context.Values.config "tls" | default dict }}
{{- if and $tls.client_ca_path (ne ($tls.client_certificates | default "required") "optional") -}}
tcpSocket: {port: http}
{{- else -}}
httpGet: {path: {{ .path }}, port: http, scheme: {{ ternary "HTTPS" "HTTP" (not (empty $tls.certificate_path)) }}}
{{- end }}
{{- end }}
