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

{{- define "kafka-pixy.config" -}}
{{- if not (or .Values.insecure (dig "insecure" false .Values.config) (dig "auth" "enabled" false .Values.config)) }}
{{- fail "set config.auth.enabled (docs/security.md), or insecure=true to let every pod that reaches the service use it" }}
{{- end }}
{{- $name := include "kafka-pixy.name" . }}
{{- $hosts := list $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) (printf "%s.%s.svc.cluster.local" $name .Release.Namespace) }}
{{- $base := dict "grpc_addr" "0.0.0.0:19091" "tcp_addr" "0.0.0.0:19092" "allowed_hosts" $hosts }}
{{- if .Values.insecure }}{{ $_ := set $base "insecure" true }}{{ end }}
{{- if not (hasKey .Values.config "proxies") }}
{{- $_ := set $base "proxies" (dict "default" (dict "kafka" (dict "seed_peers" .Values.kafkaPeers))) }}
{{- end }}
{{- toYaml (mergeOverwrite $base (deepCopy .Values.config)) }}
{{- end }}
